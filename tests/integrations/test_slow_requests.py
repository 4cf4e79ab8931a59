"""Requests whose body arrives too slowly, and requests that take too long."""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable

import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aiowheel import Timer
from aiowheel.integrations.asgi import SlowRequestMiddleware
from aiowheel.testing import VirtualClock

from .conftest import Ask, Exchange

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]


async def count(request: Request) -> Response:
    """Read the body; return its length."""
    return PlainTextResponse(str(len(await request.body())))


async def laborious(request: Request) -> Response:
    """Read a chunk, work for a long time, and read the rest."""
    length = 0
    async for chunk in request.stream():
        length += len(chunk)
        await asyncio.sleep(50)
    return PlainTextResponse(str(length))


async def never(request: Request) -> Response:
    """Do not end, whatever the client does."""
    await asyncio.Event().wait()
    raise AssertionError


def limited(**limits: object) -> Starlette:
    """Wrap an application in the middleware."""
    return Starlette(
        routes=[
            Route(f"/{each.__name__}", each, methods=["POST"]) for each in (count, laborious, never)
        ],
        middleware=[Middleware(SlowRequestMiddleware, **limits)],  # type: ignore[arg-type]
    )


async def dribble(exchange: Exchange, chunks: int, pause: float) -> None:
    """Send a body in chunks with pauses."""
    for _ in range(chunks):
        await asyncio.sleep(pause)
        exchange.send_body(b"x", more=True)
    exchange.send_body(b"")


@pytest.mark.parametrize(
    ("limits", "chunks", "pause", "status", "end"),
    [
        ({"first_byte": None, "idle": None, "body": None, "total": None}, 2, 1e6, 200, 2e6),
        ({"idle": 10}, 5, 9, 200, 45),
        ({"idle": 10}, 5, 11, 408, 10),
        ({"first_byte": 20, "idle": 10}, 2, 15, 408, 25),
        ({"first_byte": 5, "idle": 10}, 2, 6, 408, 5),
        ({"body": 30}, 5, 5, 200, 25),
        ({"idle": 10, "body": 30}, 99, 9, 408, 30),
        ({"total": 30}, 99, 9, 503, 30),
        ({"total": 30, "idle": 40}, 1, 29, 200, 29),
    ],
)
async def test_a_slow_body_is_408(
    ask: Ask,
    virtual_clock: VirtualClock,
    limits: dict[str, object],
    chunks: int,
    pause: float,
    status: int,
    end: int,
) -> None:
    """First chunk, later chunks and whole body have their own limits, and so has the request."""
    exchange = ask(limited(**limits), "/count", method="POST")
    client = asyncio.create_task(dribble(exchange, chunks, pause))
    await exchange.task

    assert round(virtual_clock.time()) == end
    assert exchange.status == status
    assert exchange.headers.get("connection") == (None if status == 200 else "close")
    assert exchange.headers.get("retry-after") == ("1" if status == 503 else None)
    client.cancel()


@pytest.mark.parametrize(("version", "header"), [("1.0", "close"), ("1.1", "close"), ("2", None)])
async def test_only_http_1_has_a_connection_header(
    ask: Ask, version: str, header: str | None
) -> None:
    """Later versions forbid it, because a stream ends without its connection."""
    app = limited(idle=10)

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "http_version": version}, receive, send)

    exchange = ask(call, "/count", method="POST")
    await exchange.task

    assert exchange.status == 408
    assert exchange.headers.get("connection") == header


async def test_only_the_time_spent_waiting_counts(ask: Ask) -> None:
    """An application that works between two reads does not make its client slow."""
    exchange = ask(limited(first_byte=1, idle=1, body=3), "/laborious", method="POST")
    exchange.send_body(b"x", more=True)
    await asyncio.sleep(25)
    exchange.send_body(b"x", more=True)
    await asyncio.sleep(50)
    exchange.send_body(b"x")
    await exchange.task

    assert (exchange.status, exchange.body) == (200, b"3")


@pytest.mark.parametrize(
    ("limits", "end"), [({"first_byte": 2}, 2), ({"body": 3}, 3), ({"idle": 1}, 1), ({}, 60)]
)
async def test_a_wait_that_the_application_gives_up_counts(
    ask: Ask, virtual_clock: VirtualClock, limits: dict[str, object], end: int
) -> None:
    """A client that sends nothing is slow, however often the application calls `receive`."""

    async def poll(scope: Scope, receive: Receive, send: Send) -> None:
        while virtual_clock.time() < 60:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.9):
                    await receive()
        await PlainTextResponse("gave up")(scope, receive, send)

    exchange = ask(SlowRequestMiddleware(poll, **limits), method="POST")  # type: ignore[arg-type]
    await exchange.task

    assert round(virtual_clock.time()) == end
    assert exchange.status == (408 if limits else 200)


async def test_a_chunk_renews_the_limit_of_a_wait_that_was_given_up(
    ask: Ask, virtual_clock: VirtualClock
) -> None:
    """The work between two waits does not count."""
    chunks: list[Message] = []

    async def poll(_: Scope, receive: Receive, __: Send) -> None:
        while virtual_clock.time() < 1_000:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(4):
                    chunks.append(await receive())
            await asyncio.sleep(100)

    exchange = ask(SlowRequestMiddleware(poll, idle=10), method="POST")
    await asyncio.sleep(150)
    exchange.send_body(b"x", more=True)  # in the pause after the second wait
    await exchange.task

    waits = (4, 4, 0, 4, 4, 2)
    assert round(virtual_clock.time()) == sum(waits) + 100 * (len(waits) - 1)
    assert (len(chunks), exchange.status) == (1, 408)


async def test_a_chunk_for_one_of_two_readers_leaves_the_other_its_limit(
    ask: Ask, virtual_clock: VirtualClock
) -> None:
    """Both readers wait at the same time; the client sends one chunk."""

    async def read_twice(_: Scope, receive: Receive, __: Send) -> None:
        async with asyncio.timeout(1_000):
            await asyncio.gather(receive(), receive())

    exchange = ask(SlowRequestMiddleware(read_twice, idle=10, body=100), method="POST")
    await asyncio.sleep(5)
    exchange.send_body(b"x", more=True)
    await exchange.task

    assert (exchange.status, round(virtual_clock.time())) == (408, 15)


async def test_a_request_over_the_total_is_503(ask: Ask, virtual_clock: VirtualClock) -> None:
    """The application is cancelled, and no timer remains."""
    async with Timer() as timer:
        app = limited(total=30, idle=10, retry_after=7, timer=timer)
        exchange = ask(app, "/never", method="POST")
        await exchange.task

        assert round(virtual_clock.time()) == 30
        assert (exchange.status, exchange.headers["retry-after"]) == (503, "7")
        assert exchange.body == b"the request took too long"
        assert len(timer) == 0


async def test_a_task_of_the_application_sends_nothing_after_the_503(ask: Ask) -> None:
    """Quart runs the handler in a task of its own, which the cancellation does not reach."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.create_task(PlainTextResponse("late")(scope, receive, slow(send)))
        tasks.append(task)
        await asyncio.wait([task])

    def slow(send: Send) -> Send:
        async def send_late(message: Message) -> None:
            await asyncio.sleep(40)
            await send(message)

        return send_late

    tasks: list[asyncio.Task[None]] = []
    exchange = ask(SlowRequestMiddleware(app, total=30))
    await exchange.task
    await tasks[0]

    assert exchange.status == 503
    assert len(exchange.sent) == 2


Handler = Callable[[Send], Awaitable[None]]


def two_tasks(handler: Handler, ended: list[str]) -> ASGIApp:
    """Run *handler* beside a task that waits for the disconnect, as Django and Quart do.

    Both tasks run on if the application is cancelled while it waits for the first one.
    """

    async def listen(receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def handle(send: Send) -> None:
        try:
            await handler(send)
        finally:
            ended.append("handler")

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            pass
        tasks = [asyncio.create_task(listen(receive)), asyncio.create_task(handle(send))]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    return app


async def wait_for_ever(_: Send) -> None:
    """Wait without a response."""
    await asyncio.Event().wait()


async def begin_and_wait(send: Send) -> None:
    """Begin the response and wait."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await asyncio.Event().wait()


async def stream(send: Send) -> None:
    """Send a response that does not end."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await asyncio.sleep(1)


async def stream_at_the_pace_of_the_client(send: Send) -> None:
    """Send a response that does not end, and wait only in `send`."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"x", "more_body": True})


def paced(app: ASGIApp) -> ASGIApp:
    """Let each `send` wait for the client."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_slowly(message: Message) -> None:
            await asyncio.sleep(0.25)
            await send(message)

        await app(scope, receive, send_slowly)

    return call


@pytest.mark.parametrize(
    "handler", [wait_for_ever, begin_and_wait, stream, stream_at_the_pace_of_the_client]
)
async def test_a_handler_beside_a_wait_for_the_disconnect_ends(
    ask: Ask, virtual_clock: VirtualClock, handler: Handler
) -> None:
    """The application receives the disconnect, because a cancellation does not reach its tasks."""
    ended: list[str] = []
    async with Timer() as timer:
        app = SlowRequestMiddleware(two_tasks(handler, ended), total=29.9, timer=timer)
        exchange = ask(paced(app), method="POST")
        exchange.send_body(b"x", more=True)
        exchange.send_body(b"")
        await asyncio.wait([exchange.task])

        assert (ended, len(timer)) == (["handler"], 0)
    assert len(asyncio.all_tasks()) == 1
    if handler is wait_for_ever:
        await exchange.task
        assert (exchange.status, exchange.body) == (503, b"the request took too long")
        assert round(virtual_clock.time(), 1) == 30.4  # with the two messages of the 503
    else:
        with pytest.raises(TimeoutError):
            await exchange.task
        assert round(virtual_clock.time(), 1) == 29.9
        assert exchange.status == 200
        assert all(message["more_body"] for message in exchange.sent[1:])


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("error", [RuntimeError, TimeoutError, asyncio.CancelledError])
async def test_an_application_that_fails_after_the_disconnect(
    ask: Ask, error: type[BaseException], *, begun: bool
) -> None:
    """The client gets the same answer as from an application that returns or is cancelled."""

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            pass
        raise error

    exchange = ask(SlowRequestMiddleware(app, total=30))
    if begun:
        with pytest.raises(TimeoutError):
            await exchange.task
        assert len(exchange.sent) == 1
    else:
        await exchange.task
        assert exchange.status == 503


@pytest.mark.parametrize("begun", [False, True])
async def test_an_application_that_ignores_the_disconnect_is_cancelled(
    ask: Ask, virtual_clock: VirtualClock, *, begun: bool
) -> None:
    """It has a second to end; what it sends meanwhile is dropped."""
    received: list[str] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                received.append((await receive())["type"])
                if len(received) == 3:
                    await PlainTextResponse("late")({"type": "http"}, receive, send)
                    await asyncio.Event().wait()
        finally:
            received.append((await receive())["type"])

    exchange = ask(SlowRequestMiddleware(app, total=30))
    await asyncio.wait([exchange.task])

    assert round(virtual_clock.time()) == 31
    assert received == ["http.request", *["http.disconnect"] * 3]
    assert exchange.status == (200 if begun else 503)
    assert (type(exchange.task.exception()) is TimeoutError) == begun
    assert len(exchange.sent) == (1 if begun else 2)


@pytest.mark.parametrize("call", ["receive", "send"])
async def test_calls_after_the_disconnect_let_other_tasks_run(ask: Ask, call: str) -> None:
    """An application that ignores the disconnect may call them in a loop without another wait."""
    turns: list[int] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        await receive()  # answers at once, see the next test
        for turn in range(3):
            asyncio.get_running_loop().call_soon(turns.append, turn)
            if call == "receive":
                await receive()
            else:
                await send({"type": "http.response.body", "body": b"x", "more_body": True})
            assert turns[-1] == turn
        turns.append(3)

    await ask(SlowRequestMiddleware(app, total=30)).task

    assert turns == [0, 1, 2, 3]


async def test_starlettes_look_at_the_connection_finds_the_disconnect(ask: Ask) -> None:
    """`is_disconnected` calls `receive` in a scope that is cancelled already."""
    looks: list[bool] = []

    async def app(scope: Scope, receive: Receive, _: Send) -> None:
        request = Request(scope, receive)
        await request.body()
        await receive()
        looks.extend([await request.is_disconnected() for _ in range(2)])

    await ask(SlowRequestMiddleware(app, total=30)).task

    assert looks == [True, True]


async def test_the_client_does_not_wait_for_the_end_of_the_application(
    ask: Ask, virtual_clock: VirtualClock
) -> None:
    """Django waits for the thread of a plain view, which nothing can cancel."""
    statuses: list[int] = []

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        statuses.append(exchange.status)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(100)
        await asyncio.sleep(100)

    exchange = ask(SlowRequestMiddleware(app, total=30))
    await exchange.task

    assert (statuses, len(exchange.sent)) == ([503], 2)
    assert round(virtual_clock.time()) == 131


async def test_a_503_that_the_application_interrupts_is_aborted(ask: Ask) -> None:
    """The server gets TimeoutError; no second response begins."""

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        await receive()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30.4):
                await receive()

    exchange = ask(paced(SlowRequestMiddleware(app, total=30)))
    with pytest.raises(TimeoutError):
        await exchange.task

    assert [message["type"] for message in exchange.sent] == ["http.response.start"]


async def test_an_application_that_has_given_up_its_wait_is_cancelled_at_once(
    ask: Ask, virtual_clock: VirtualClock
) -> None:
    """Nothing waits for the disconnect."""

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        await receive()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await receive()
        await asyncio.Event().wait()

    exchange = ask(SlowRequestMiddleware(app, total=30))
    await exchange.task

    assert (exchange.status, round(virtual_clock.time())) == (503, 30)


async def test_a_response_that_ends_after_the_disconnect_is_complete(ask: Ask) -> None:
    """Its last message waited for the client when the time was over."""
    done: list[str] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        listening = asyncio.ensure_future(receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})
        done.append((await listening)["type"])
        await asyncio.sleep(100)
        done.append("clean")

    exchange = ask(paced(SlowRequestMiddleware(app, total=0.4)))
    await exchange.task

    assert (exchange.status, exchange.body) == (200, b"done")
    assert done == ["http.disconnect", "clean"]


async def test_the_servers_cancellation_passes_after_the_disconnect(ask: Ask) -> None:
    """It does not become a timeout, and no timer remains."""

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        told.set()
        await asyncio.Event().wait()

    told = asyncio.Event()
    async with Timer() as timer:
        exchange = ask(SlowRequestMiddleware(app, total=30, timer=timer))
        await told.wait()

        exchange.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await exchange.task

        assert (exchange.status, len(exchange.sent), len(timer)) == (503, 2, 0)


async def test_a_wait_for_the_disconnect_makes_no_timer(ask: Ask) -> None:
    """A request uses one timer for its body and one for *total*, and no further task."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        before = asyncio.all_tasks()
        await receive()
        for _ in range(100):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await receive()
        await PlainTextResponse(str(asyncio.all_tasks() == before))(scope, receive, send)

    async with Timer() as timer:
        exchange = ask(SlowRequestMiddleware(app, idle=10, total=30, timer=timer))
        await exchange.task

        assert exchange.body == b"True"
        assert (timer.statistics().scheduled, len(timer)) == (2, 0)


async def test_a_response_that_has_begun_is_aborted(ask: Ask) -> None:
    """The server gets TimeoutError; no second response begins."""

    async def endless(request: Request) -> Response:
        async def numbers() -> object:
            for number in range(10**9):
                yield str(number)
                await asyncio.sleep(1)

        return StreamingResponse(numbers())  # type: ignore[arg-type]

    app = SlowRequestMiddleware(Starlette(routes=[Route("/", endless)]), total=30)
    exchange = ask(app)
    with pytest.raises(TimeoutError):
        await exchange.task

    starts = [message for message in exchange.sent if message["type"] == "http.response.start"]
    assert len(starts) == 1
    assert exchange.sent[-1]["more_body"]


@pytest.mark.parametrize("kind", ["http.response.early_hint", "http.response.push"])
async def test_a_message_before_the_response_does_not_begin_it(ask: Ask, kind: str) -> None:
    """After early hints, a handler that is too slow is still answered with 503."""

    async def hint(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": kind, "links": [], "path": "/style.css", "headers": []})
        await asyncio.sleep(100)

    exchange = ask(SlowRequestMiddleware(hint, total=30))
    await exchange.task

    assert [message["type"] for message in exchange.sent] == [
        kind,
        "http.response.start",
        "http.response.body",
    ]
    assert exchange.sent[1]["status"] == 503


async def test_what_runs_after_the_response_has_no_limit(ask: Ask) -> None:
    """The client has its response by then."""
    done: list[str] = []

    async def clean_up() -> None:
        await asyncio.sleep(100)
        done.append("clean")

    async def answer(request: Request) -> Response:
        return PlainTextResponse("yes", background=BackgroundTask(clean_up))

    exchange = ask(SlowRequestMiddleware(Starlette(routes=[Route("/", answer)]), total=30))
    await exchange.task

    assert (exchange.status, done) == (200, ["clean"])


async def test_a_wait_for_the_client_after_the_response_has_no_limit(ask: Ask) -> None:
    """For example for its disconnect; the client has sent no body."""
    done: list[str] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        waiting = asyncio.ensure_future(receive())
        await asyncio.sleep(1)
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"done"})
        done.append((await waiting)["type"])
        done.append((await receive())["type"])

    exchange = ask(SlowRequestMiddleware(app, idle=5, body=5), method="POST")
    await asyncio.sleep(60)
    exchange.send_body(b"x", more=True)
    await asyncio.sleep(60)
    exchange.send_body(b"")
    await exchange.task

    assert done == ["http.request", "http.request"]


async def test_a_file_that_the_server_sends_ends_the_response(ask: Ask) -> None:
    """What runs after it has no limit either."""
    done: list[str] = []

    async def send_file(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.pathsend", "path": "/a/file"})
        await asyncio.sleep(100)
        done.append("clean")

    await ask(SlowRequestMiddleware(send_file, total=30)).task

    assert done == ["clean"]


async def test_trailers_are_a_part_of_the_response(ask: Ask) -> None:
    """The response ends with its last trailers, and what runs after them has no limit."""
    done: list[str] = []

    async def send_trailers(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [], "trailers": True})
        await send({"type": "http.response.body", "body": b"x"})
        await send({"type": "http.response.trailers", "headers": [], "more_trailers": True})
        await asyncio.sleep(20 if scope["method"] == "POST" else 100)
        await send({"type": "http.response.trailers", "headers": []})
        await asyncio.sleep(100)
        done.append("clean")

    app = SlowRequestMiddleware(send_trailers, total=30)
    with pytest.raises(TimeoutError):
        await ask(app).task
    await ask(app, method="POST").task

    assert done == ["clean"]


async def test_a_wait_after_the_body_has_no_body_limit(ask: Ask) -> None:
    """A long poll may wait for the disconnect for any time."""

    async def wait(request: Request) -> Response:
        await request.body()
        message = await request.receive()
        return PlainTextResponse(message["type"])

    app = SlowRequestMiddleware(Starlette(routes=[Route("/", wait)]), first_byte=1, idle=1, body=1)
    exchange = ask(app)
    await asyncio.sleep(100)
    exchange.disconnect()
    await exchange.task

    assert exchange.body == b"http.disconnect"


async def test_a_timeout_of_the_applications_own_passes(ask: Ask) -> None:
    """It is an error of the application, not of a slow request."""

    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        raise TimeoutError("database")

    exchange = ask(SlowRequestMiddleware(fail, total=30))

    with pytest.raises(TimeoutError, match="database"):
        await exchange.task
    assert exchange.sent == []


async def test_a_disconnect_is_not_a_slow_body(ask: Ask) -> None:
    """The application receives it as without the middleware."""
    exchange = ask(limited(idle=10), "/count", method="POST")
    await asyncio.sleep(5)
    exchange.disconnect()
    await asyncio.wait([exchange.task])
    await asyncio.sleep(100)

    assert type(exchange.task.exception()).__name__ == "ClientDisconnect"


async def test_the_servers_cancellation_passes(ask: Ask) -> None:
    """It does not become a timeout, and no timer remains."""
    async with Timer() as timer:
        exchange = ask(limited(idle=10, total=30, timer=timer), "/count", method="POST")
        await asyncio.sleep(5)

        exchange.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await exchange.task

        assert len(timer) == 0


async def test_it_works_around_middleware_with_a_task_group(ask: Ask) -> None:
    """Starlette's BaseHTTPMiddleware runs the application in another task."""

    async def unchanged(request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)

    app: ASGIApp = Starlette(
        routes=[Route("/", count, methods=["POST"])],
        middleware=[
            Middleware(SlowRequestMiddleware, idle=10),
            Middleware(BaseHTTPMiddleware, dispatch=unchanged),
        ],
    )
    exchange = ask(app, method="POST")
    await exchange.task

    assert exchange.status == 408
    assert len(asyncio.all_tasks()) == 1


async def test_other_scopes_pass_unchanged() -> None:
    """The middleware does not limit websockets and the lifespan."""
    seen: list[tuple[Scope, Receive, Send]] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope, receive, send))

    async def receive() -> Message:
        return {}

    async def send(message: Message) -> None: ...

    for kind in ("websocket", "lifespan"):
        scope = {"type": kind}
        await SlowRequestMiddleware(note, idle=1)(scope, receive, send)
        assert seen.pop() == (scope, receive, send)


async def test_a_chunk_of_a_body_makes_no_timer(ask: Ask) -> None:
    """1,000 chunks use one timer."""
    async with Timer() as timer:
        exchange = ask(limited(idle=10, body=1e6, timer=timer), "/count", method="POST")
        await dribble(exchange, 1_000, 1)
        await exchange.task

        assert exchange.body == b"1000"
        assert timer.statistics().scheduled == 1


@pytest.mark.parametrize("limit", ["first_byte", "idle", "body", "total"])
@pytest.mark.parametrize("value", [0, -1, math.nan])
def test_a_limit_out_of_range_is_refused(limit: str, value: float) -> None:
    """The constructor raises, not the first request."""
    with pytest.raises(ValueError, match=f"{limit} must"):
        SlowRequestMiddleware(Starlette(), **{limit: value})  # type: ignore[arg-type]


async def test_a_wait_for_the_disconnect_after_the_response_has_no_limit(ask: Ask) -> None:
    """Also if the application has received nothing before it, and the body never comes."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})
        while (await receive())["type"] != "http.disconnect":
            pass

    exchange = ask(SlowRequestMiddleware(app, idle=10), "/", method="POST")
    await asyncio.sleep(100)
    assert not exchange.task.done()
    exchange.disconnect()
    await exchange.task
    assert (exchange.status, exchange.body) == (200, b"done")
