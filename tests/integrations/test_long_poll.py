"""Long polls: answered, timed out, refused, or cancelled by a disconnect."""

import asyncio
import random
import weakref
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from aiowheel import Outcome, Purgatory
from aiowheel._types import Drain
from aiowheel.integrations.asgi import long_poll, long_poll_version
from aiowheel.testing import VirtualClock

from .conftest import Ask, Exchange

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]


class News:
    """Items, and an application whose requests wait for them."""

    def __init__(self, purgatory: Purgatory) -> None:
        self.purgatory = purgatory
        self.items: list[str] = []
        self.options: dict[str, object] = {"timeout": 30}
        self.app = Starlette(routes=[Route("/", self.poll)])

    async def poll(self, request: Request) -> Response:
        """Wait for the items."""
        ready: Callable[[], object] = self.items.copy
        options = {"keys": ["news"], "ready": ready, **self.options}
        return await long_poll(request, self.purgatory, **options)  # type: ignore[arg-type]

    def publish(self, item: str) -> int:
        """Add an item; return the number of answered polls."""
        self.items.append(item)
        return self.purgatory.check_and_complete("news")


@pytest_asyncio.fixture
async def news() -> AsyncGenerator[News]:
    """An application whose purgatory has room for two operations."""
    async with Purgatory("news", max_pending=2) as purgatory:
        yield News(purgatory)


async def turns(count: int = 3) -> None:
    """Run enough loop iterations for all tasks to proceed."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_poll_waits_and_is_answered(
    news: News, ask: Ask, virtual_clock: VirtualClock
) -> None:
    """It is answered once at the publish, and the answer must not be cached."""
    exchange = ask(news.app)
    await asyncio.sleep(7)
    assert len(news.purgatory) == 1

    assert news.publish("rain") == 1
    await exchange.task

    assert virtual_clock.time() == 7
    assert (exchange.status, exchange.json()) == (200, ["rain"])
    assert exchange.headers["cache-control"] == "no-store"
    assert (len(news.purgatory), news.purgatory.watched) == (0, 0)


async def test_a_poll_whose_condition_is_met_does_not_wait(news: News, ask: Ask) -> None:
    """The condition is checked before the wait for a disconnect."""
    news.publish("rain")

    exchange = ask(news.app)
    await exchange.task

    assert exchange.json() == ["rain"]


async def test_the_timeout_answers_204(news: News, ask: Ask, virtual_clock: VirtualClock) -> None:
    """The answer has no body, and nothing remains."""
    exchange = ask(news.app)
    await exchange.task

    assert virtual_clock.time() == pytest.approx(30, abs=0.002)
    assert (exchange.status, exchange.body) == (204, b"")
    assert (len(news.purgatory), news.purgatory.watched) == (0, 0)


async def test_on_timeout_makes_the_answer_of_the_timeout(news: News, ask: Ask) -> None:
    """It is called at the timeout and not before."""
    news.options["on_timeout"] = lambda: {"items": news.items, "again": True}

    exchange = ask(news.app)
    await exchange.task

    assert (exchange.status, exchange.json()) == (200, {"items": [], "again": True})


async def test_a_response_is_sent_as_it_is(news: News, ask: Ask) -> None:
    """Its status and its headers are unchanged."""
    response = PlainTextResponse("tea", 418, headers={"cache-control": "private"})
    news.options["ready"] = lambda: response

    exchange = ask(news.app)
    await exchange.task

    assert (exchange.status, exchange.body) == (418, b"tea")
    assert exchange.headers["cache-control"] == "private"


async def test_render_makes_the_response(news: News, ask: Ask) -> None:
    """JSON is only the default."""
    news.options |= {"ready": lambda: "rain", "render": PlainTextResponse}

    exchange = ask(news.app)
    await exchange.task

    assert exchange.body == b"rain"


async def test_a_disconnect_cancels_the_operation(
    news: News, ask: Ask, virtual_clock: VirtualClock
) -> None:
    """The handler ends without an error, and no task remains."""
    exchange = ask(news.app)
    await asyncio.sleep(7)
    (operation,) = news.purgatory.pending("news")
    tasks = len(asyncio.all_tasks())

    exchange.disconnect()
    await exchange.task

    assert virtual_clock.time() == 7
    assert operation.outcome is Outcome.CANCELLED
    assert (len(news.purgatory), news.purgatory.watched) == (0, 0)
    assert len(asyncio.all_tasks()) == tasks - 1
    assert exchange.status == 499
    assert news.publish("rain") == 0


async def test_waiting_takes_no_task_of_its_own(news: News, ask: Ask) -> None:
    """The task of the request waits for the disconnect."""
    exchange = ask(news.app)
    await turns()

    assert asyncio.all_tasks() - {asyncio.current_task()} == {exchange.task}
    news.publish("rain")
    await exchange.task


async def test_the_rest_of_a_body_is_no_disconnect(news: News, ask: Ask) -> None:
    """Chunks that arrive during the wait are discarded."""
    news.app = Starlette(routes=[Route("/", news.poll, methods=["POST"])])
    exchange = ask(news.app, method="POST")
    for more in (True, True, False):
        exchange.send_body(b"x" * 1000, more=more)
        await turns()

    assert len(news.purgatory) == 1
    news.publish("rain")
    await exchange.task
    assert exchange.json() == ["rain"]


@pytest.mark.parametrize("first", ["news", "disconnect"])
async def test_a_result_and_a_disconnect_in_one_iteration_end_it_once(
    news: News, ask: Ask, first: str
) -> None:
    """In either order the operation completes once, and nothing remains or is raised."""
    exchange = ask(news.app)
    await turns()

    if first == "news":
        news.publish("rain")
        exchange.disconnect()
    else:
        exchange.disconnect()
        news.publish("rain")
    await exchange.task

    assert news.purgatory.statistics().completed == 1
    assert (len(news.purgatory), news.purgatory.watched) == (0, 0)


async def test_cancelling_the_request_cancels_its_operation(news: News, ask: Ask) -> None:
    """Some servers cancel the handler of a disconnected client."""
    exchange = ask(news.app)
    await turns()

    exchange.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exchange.task

    assert (len(news.purgatory), news.purgatory.watched) == (0, 0)
    assert news.purgatory.statistics().cancelled == 1


@pytest.mark.parametrize("news_first", [False, True])
async def test_a_cancellation_with_a_result_is_not_lost(
    news: News, ask: Ask, *, news_first: bool
) -> None:
    """The interruption by the result must not swallow another cancellation."""
    exchange = ask(news.app)
    await turns()

    if news_first:
        news.publish("rain")
        await asyncio.sleep(0)  # the result interrupts the request now
        exchange.task.cancel()
    else:
        exchange.task.cancel()
        news.publish("rain")

    with pytest.raises(asyncio.CancelledError):
        await exchange.task
    assert len(news.purgatory) == 0


async def test_an_outer_timeout_still_works(news: News, ask: Ask) -> None:
    """Its cancellation is distinguished from that of the result."""

    async def bounded(request: Request) -> Response:
        try:
            async with asyncio.timeout(5):
                return await news.poll(request)
        except TimeoutError:
            return PlainTextResponse("bounded")

    exchange = ask(Starlette(routes=[Route("/", bounded)]))
    await exchange.task
    assert exchange.body == b"bounded"

    exchange = ask(Starlette(routes=[Route("/", bounded)]))
    await turns()
    news.publish("rain")
    await exchange.task

    assert exchange.json() == ["rain"]


async def test_the_task_counts_no_cancellation_afterwards(news: News, ask: Ask) -> None:
    """The interruption is undone by `uncancel`, so that a later timeout works."""
    counts: list[int] = []

    async def counting(request: Request) -> Response:
        response = await news.poll(request)
        task = asyncio.current_task()
        assert task is not None
        counts.append(task.cancelling())
        await asyncio.sleep(1)
        return response

    exchange = ask(Starlette(routes=[Route("/", counting)]))
    await turns()
    news.publish("rain")
    await exchange.task

    assert counts == [0]


@pytest.mark.parametrize("order", ["news first", "disconnect first"])
async def test_what_the_handler_does_afterwards_is_not_interrupted(
    news: News, ask: Ask, order: str
) -> None:
    """This holds also if result and disconnect come in the same loop iteration."""
    done: list[str] = []

    async def careful(request: Request) -> Response:
        response = await news.poll(request)
        await asyncio.sleep(1)
        done.append("cleaned up")
        return response

    exchange = ask(Starlette(routes=[Route("/", careful)]))
    await turns()
    if order == "disconnect first":
        exchange.disconnect()
    news.publish("rain")
    exchange.disconnect()
    await exchange.task

    assert done == ["cleaned up"]


@pytest.mark.usefixtures("no_gc")
@pytest.mark.parametrize("end", ["news", "timeout", "disconnect", "cancellation"])
async def test_a_finished_request_is_freed_at_once(news: News, ask: Ask, end: str) -> None:
    """It is freed without the cyclic collector, because a request may hold much memory."""
    requests: list[weakref.ref[Request]] = []

    async def watched(request: Request) -> Response:
        requests.append(weakref.ref(request))
        return await news.poll(request)

    app = Starlette(routes=[Route("/", watched)])
    exchange = ask(app)
    await asyncio.sleep(1)
    if end == "news":
        news.publish("rain")
    elif end == "disconnect":
        exchange.disconnect()
    elif end == "cancellation":
        exchange.task.cancel()
    await asyncio.wait([exchange.task])
    del exchange
    await turns()

    assert [request() for request in requests] == [None]


async def test_polls_above_max_pending_are_refused(news: News, ask: Ask) -> None:
    """They get 503 at once; waiting polls continue."""
    news.options["retry_after"] = 7
    waiting = [ask(news.app) for _ in range(2)]
    await turns()

    refused = ask(news.app)
    await refused.task

    assert (refused.status, refused.headers["retry-after"]) == (503, "7")
    assert news.publish("rain") == 2
    await asyncio.gather(*[each.task for each in waiting])
    assert [each.status for each in waiting] == [200, 200]


@pytest.mark.parametrize(("drain", "status"), [("expire", 204), ("cancel", 503)])
async def test_closing_the_purgatory_answers_waiting_polls(
    news: News, ask: Ask, drain: Drain, status: int
) -> None:
    """Later polls are refused."""
    exchange = ask(news.app)
    await turns()

    await news.purgatory.aclose(drain=drain)
    await exchange.task
    late = ask(news.app)
    await late.task

    assert (exchange.status, late.status) == (status, 503)


async def test_a_poll_cancelled_by_the_application_is_503(news: News, ask: Ask) -> None:
    """`cancel_for_key` does not cancel the request."""
    exchange = ask(news.app)
    await turns()

    assert len(news.purgatory.cancel_for_key("news")) == 1
    await exchange.task

    assert exchange.status == 503


@pytest.mark.parametrize("when", ["at once", "at a check", "at the timeout"])
async def test_an_error_of_the_condition_is_raised_in_the_request(
    news: News, ask: Ask, when: str
) -> None:
    """The framework gets it like any error of the handler, and nothing remains."""

    def fail() -> object:
        raise ZeroDivisionError

    if when == "at the timeout":
        news.options["on_timeout"] = fail
    else:
        news.options["ready"] = lambda: (when == "at once" or news.items) and fail()
    exchange = ask(news.app)
    await turns()
    if when == "at a check":
        news.publish("rain")

    with pytest.raises(ZeroDivisionError):
        await exchange.task
    assert exchange.status == 500
    assert (len(news.purgatory), news.purgatory.watched) == (0, 0)


@pytest.mark.virtual_time(seed=range(5))
async def test_jittered_timeouts_do_not_come_together(
    ask: Ask, virtual_clock: VirtualClock
) -> None:
    """Polls that began at the same time end at different times, none after its timeout."""
    ended: list[float] = []
    async with Purgatory() as purgatory:
        news = News(purgatory)
        news.options |= {"timeout": 30, "jitter": 10}
        exchanges = [ask(news.app) for _ in range(50)]
        for each in exchanges:
            each.task.add_done_callback(lambda _: ended.append(virtual_clock.time()))
        await asyncio.gather(*[each.task for each in exchanges])

    assert len({round(each, 2) for each in ended}) > 40
    assert 20 <= min(ended) < 23
    assert 27 < max(ended) <= 30.002


@pytest.mark.virtual_time(seed=range(20))
async def test_each_poll_ends_once_for_any_simultaneous_events(
    ask: Ask, request: pytest.FixtureRequest
) -> None:
    """Results, timeouts, disconnects and cancellations come at the same times, in all orders."""
    rng = random.Random(request.node.name)
    async with Purgatory() as purgatory:
        news = News(purgatory)
        news.options["timeout"] = 5
        exchanges: list[Exchange] = []
        for _ in range(100):
            exchanges.append(ask(news.app))
            if rng.random() < 0.3:
                await asyncio.sleep(1)
            for each in rng.sample(exchanges, min(3, len(exchanges))):
                if rng.random() < 0.5:
                    each.disconnect()
                else:
                    each.task.cancel()
            await turns(rng.randrange(4))
            if rng.random() < 0.2:
                news.publish("rain")
                news.items.clear()
        await asyncio.wait([each.task for each in exchanges])

        counts = purgatory.statistics()
        assert (counts.pending, counts.watched) == (0, 0)
    ended = Counter(None if each.task.cancelled() else each.status for each in exchanges)
    assert set(ended) <= {200, 204, 499, None}
    # A poll that was cancelled from outside may have ended in the iteration before, or not.
    without_answer = [
        counts.completed - ended[200],
        counts.expired - ended[204],
        counts.cancelled - ended[499],
    ]
    assert min(without_answer) >= 0
    assert sum(without_answer) <= ended[None]


@pytest.mark.parametrize("jitter", [-1, 31, float("nan"), "3"])
async def test_a_jitter_out_of_range_is_refused(news: News, ask: Ask, jitter: object) -> None:
    """Nothing waits."""
    news.options["jitter"] = jitter

    with pytest.raises((ValueError, TypeError), match="jitter"):
        await ask(news.app).task
    assert len(news.purgatory) == 0


async def test_without_a_timeout_a_poll_does_not_expire(
    news: News, ask: Ask, virtual_clock: VirtualClock
) -> None:
    """None means no timeout, with or without jitter."""
    news.options |= {"timeout": None, "jitter": 5}
    exchange = ask(news.app)
    await asyncio.sleep(1e6)
    assert len(news.purgatory) == 1

    news.publish("rain")
    await exchange.task

    assert (exchange.status, virtual_clock.time()) == (200, 1e6)


async def test_a_timeout_that_is_no_number_is_named(news: News, ask: Ask) -> None:
    """Nothing waits."""
    news.options["timeout"] = "30"

    with pytest.raises(TypeError, match=r"^timeout must be a number of seconds or a timedelta"):
        await ask(news.app).task
    assert len(news.purgatory) == 0


async def tell(*_: object) -> str:
    """A coroutine function, where a plain function is required."""
    return "news"


@pytest.mark.parametrize("name", ["ready", "on_timeout", "render"])
async def test_a_coroutine_function_is_refused_with_advice(news: News, ask: Ask, name: str) -> None:
    """Nothing waits; the error names the argument."""
    news.options[name] = tell

    with pytest.raises(TypeError, match=f"^{name} must be a plain function, .*await what it needs"):
        await ask(news.app).task
    assert len(news.purgatory) == 0


@pytest.mark.parametrize("name", ["ready", "on_timeout", "render"])
async def test_a_coroutine_that_a_plain_function_returns_is_an_error(
    news: News, ask: Ask, name: str
) -> None:
    """A coroutine is a true value and would pass as an answer. It is closed, and nothing waits."""

    def plain(*_: object) -> object:
        return tell()

    news.options[name] = plain
    exchange = ask(news.app)
    await turns()
    if name == "render":
        news.publish("rain")

    with pytest.raises(TypeError, match=f"^{name} must be a plain function, but it returned"):
        await exchange.task
    assert (len(news.purgatory), news.purgatory.watched) == (0, 0)


async def test_middleware_that_listens_to_the_client_too(news: News, ask: Ask) -> None:
    """Starlette's BaseHTTPMiddleware receives in a task group.

    Results and disconnects pass through it.
    """

    async def unchanged(request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)

    app = Starlette(
        routes=[Route("/", news.poll)],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=unchanged)] * 2,
    )
    left, answered = ask(app), ask(app)
    await turns(20)
    assert len(news.purgatory) == 2

    left.disconnect()
    await left.task
    assert len(news.purgatory) == 1
    news.publish("rain")
    await answered.task

    assert (answered.status, answered.json()) == (200, ["rain"])
    assert len(news.purgatory) == 0


@pytest.mark.parametrize("kind", ["condition", "version"])
async def test_another_object_than_a_purgatory_is_refused(ask: Ask, kind: str) -> None:
    """The error names the argument and shows the value, for example an `app.state` without one."""
    wrong: Any = None

    async def poll(request: Request) -> Response:
        if kind == "condition":
            return await long_poll(request, wrong, keys=["k"], ready=lambda: None, timeout=30)
        return await long_poll_version(
            request, wrong, "k", version=lambda: 1, answer=lambda: 1, timeout=30
        )

    with pytest.raises(TypeError, match="purgatory must be a Purgatory, got None"):
        await ask(Starlette(routes=[Route("/", poll)]), "/?since=1").task


@pytest.mark.parametrize("request_of", [None, "GET /"])
async def test_another_object_than_a_request_is_refused(request_of: Any) -> None:
    """For example the request of another framework."""
    text = f"^request must be a Request of Starlette or FastAPI, got {request_of!r}$"
    async with Purgatory("news") as purgatory:
        with pytest.raises(TypeError, match=text):
            await long_poll(request_of, purgatory, keys=["k"], ready=lambda: None, timeout=30)
        with pytest.raises(TypeError, match=text):
            await long_poll_version(
                request_of, purgatory, "k", version=lambda: 1, answer=lambda: 1, timeout=30
            )


@pytest.mark.parametrize("kind", ["condition", "version"])
async def test_a_refusal_is_not_stored(ask: Ask, kind: str) -> None:
    """A cache must not answer later polls with it."""
    async with Purgatory("news", max_pending=1) as purgatory:

        async def poll(request: Request) -> Response:
            if kind == "condition":
                return await long_poll(
                    request, purgatory, keys=["k"], ready=lambda: None, timeout=30
                )
            return await long_poll_version(
                request, purgatory, "k", version=lambda: 1, answer=lambda: 1, timeout=30
            )

        app = Starlette(routes=[Route("/", poll)])
        waiting, refused = ask(app, "/?since=1"), ask(app, "/?since=1")
        await refused.task

        assert (refused.status, refused.headers["cache-control"]) == (503, "no-store")
        waiting.disconnect()
        await waiting.task
