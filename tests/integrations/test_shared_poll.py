"""Requests that wait for a shared counter in any worker, with the token as the tag."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from operator import itemgetter
from typing import Any

import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from aiowheel import Purgatory
from aiowheel.integrations.asgi import long_poll, long_poll_version
from aiowheel.shared import SharedCounters
from aiowheel.testing import MemoryCounters, VirtualClock

from .conftest import Ask, Exchange

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]


@asynccontextmanager
async def worker(store: MemoryCounters) -> AsyncGenerator[tuple[Purgatory, SharedCounters]]:
    """Open the purgatory and the shared counters of one worker."""
    async with (
        Purgatory("documents", max_pending=2) as purgatory,
        SharedCounters(purgatory, store) as shared,
    ):
        yield purgatory, shared


class Service:
    """A document that several workers serve.

    Attributes:
        stores: The store object of each worker.
        purgatories: The purgatory of each worker.
        shared: The shared counters of each worker.
        apps: The application of each worker.
        version: The version of the document, in a database that all workers read.
        version_of: The argument `version` of the long polls.
    """

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.stores: list[MemoryCounters] = []
        self.purgatories: list[Purgatory] = []
        self.shared: list[SharedCounters] = []
        self.apps: list[Starlette] = []
        self.version = 0
        self.version_of: Callable[[Any], int] | None = None

    async def start(self, store: MemoryCounters) -> None:
        """Start a worker."""
        purgatory, shared = await self._stack.enter_async_context(worker(store))

        async def read() -> dict[str, int]:
            await asyncio.sleep(0)
            return {"version": self.version}

        async def poll(request: Request) -> Response:
            return await long_poll_version(
                request, shared, "document", answer=read, version=self.version_of, timeout=30
            )

        self.stores.append(store)
        self.purgatories.append(purgatory)
        self.shared.append(shared)
        self.apps.append(Starlette(routes=[Route("/", poll)]))

    async def write(self, worker: int = 0) -> str:
        """Make the next version in one worker; return its token."""
        self.version += 1
        return await self.shared[worker].advance("document", self.version)


@pytest_asyncio.fixture
async def service() -> AsyncGenerator[Service]:
    """Two workers, and a document at version 3."""
    async with AsyncExitStack() as stack:
        service = Service(stack)
        store = MemoryCounters()
        await service.start(store)
        await service.start(store.beside())
        for _ in range(3):
            await service.write()
        yield service


def with_token(token: str, how: str) -> dict[str, Any]:
    """Return the arguments of `ask` for a client with this token."""
    if how == "since":
        return {"target": f"/?since={token}"}
    return {"headers": {"if-none-match": f'"{token}"'}}


def tag_of(exchange: Exchange) -> str:
    """Return the token of an answer."""
    return exchange.headers["etag"].strip('"')


HOW = pytest.mark.parametrize("how", ["since", "if-none-match"])


async def test_a_client_without_a_token_is_answered_at_once(
    service: Service, ask: Ask, virtual_clock: VirtualClock
) -> None:
    """The worker has not waited for the key before; the tag is the token."""
    exchange = ask(service.apps[1])
    await exchange.task

    assert virtual_clock.time() == 0
    assert (exchange.status, exchange.json()) == (200, {"version": 3})
    assert tag_of(exchange) == await service.shared[0].token("document")
    assert exchange.headers["cache-control"] == "no-cache"


@HOW
async def test_a_client_waits_in_one_worker_for_a_publish_in_another(
    service: Service, ask: Ask, virtual_clock: VirtualClock, how: str
) -> None:
    """The client has the token from the other worker."""
    token = await service.shared[0].token("document")
    exchange = ask(service.apps[1], **with_token(token, how))
    await asyncio.sleep(7)
    assert not exchange.task.done()

    token = await service.write(0)
    await exchange.task

    assert virtual_clock.time() == 7
    assert (exchange.status, exchange.json(), tag_of(exchange)) == (200, {"version": 4}, token)


@HOW
async def test_a_client_that_missed_versions_is_answered_at_once(
    service: Service, ask: Ask, virtual_clock: VirtualClock, how: str
) -> None:
    """It has version 3, and comes to a worker that started later."""
    token = await service.shared[0].token("document")
    await service.write()
    await service.start(service.stores[0].beside())
    exchange = ask(service.apps[2], **with_token(token, how))
    await exchange.task

    assert virtual_clock.time() == 0
    assert (exchange.status, exchange.json()) == (200, {"version": 4})


@pytest.mark.parametrize(("how", "status"), [("since", 204), ("if-none-match", 304)])
async def test_nothing_new_has_the_tag_of_the_client(
    service: Service, ask: Ask, virtual_clock: VirtualClock, how: str, status: int
) -> None:
    """The answer comes after the timeout."""
    token = await service.shared[0].token("document")
    exchange = ask(service.apps[0], **with_token(token, how))
    await exchange.task

    assert virtual_clock.time() == pytest.approx(30, abs=0.002)
    assert (exchange.status, exchange.body, tag_of(exchange)) == (status, b"", token)


@pytest.mark.parametrize("tags", ["*", 'W/"{}"', '"x", "{}"', '"{}", "0:9"', '"{}-gzip", "{}"'])
async def test_every_form_of_if_none_match_is_understood(
    service: Service, ask: Ask, virtual_clock: VirtualClock, tags: str
) -> None:
    """Of several tags, the newest one of the current history counts."""
    token = await service.shared[0].token("document")
    exchange = ask(service.apps[0], headers={"if-none-match": tags.replace("{}", token)})
    await exchange.task

    assert (exchange.status, tag_of(exchange)) == (304, token)
    assert virtual_clock.time() == pytest.approx(30, abs=0.002)


@pytest.mark.parametrize("tags", ['"3"', '"x:y"', '":3"', "3", "", '"{}-gzip"'])
async def test_a_tag_that_is_no_token_is_out_of_date(
    service: Service, ask: Ask, virtual_clock: VirtualClock, tags: str
) -> None:
    """A client with another kind of tag needs the document."""
    token = await service.shared[0].token("document")
    exchange = ask(service.apps[0], headers={"if-none-match": tags.replace("{}", token)})
    await exchange.task

    assert (exchange.status, virtual_clock.time()) == (200, 0)


@pytest.mark.parametrize("since", ["", "3", ":3", "a:-1", "a:1.5", "a:%d9%a3", "a:" + "9" * 5000])
async def test_a_since_that_is_no_token_is_refused(service: Service, ask: Ask, since: str) -> None:
    """The error cuts a long value."""
    exchange = ask(service.apps[0], f"/?since={since}")
    await exchange.task

    assert exchange.status == 400
    assert exchange.body.startswith(b'since must be a token "epoch:value", as the ETag has it, got')
    assert len(exchange.body) < 130


@HOW
async def test_a_lost_history_is_answered_at_once(
    service: Service, ask: Ask, virtual_clock: VirtualClock, how: str
) -> None:
    """This concerns waiting clients, and later ones with an old token."""
    token = await service.shared[0].token("document")
    waiting = ask(service.apps[0], **with_token(token, how))
    await asyncio.sleep(7)

    service.stores[0].lose_history()
    await waiting.task
    late = ask(service.apps[1], **with_token(token, how))
    await late.task

    assert virtual_clock.time() == pytest.approx(7, abs=0.1)
    for exchange in (waiting, late):
        assert (exchange.status, exchange.json()) == (200, {"version": 3})
        assert tag_of(exchange) == await service.shared[0].token("document") != token


@HOW
async def test_after_a_lost_history_the_version_raises_the_counter(
    service: Service, ask: Ask, how: str
) -> None:
    """The new tag is that of the data, and the next poll waits."""
    service.version_of = lambda document: document["version"]
    token = await service.shared[0].token("document")
    service.stores[0].lose_history()
    first = ask(service.apps[1], **with_token(token, how))
    await first.task

    assert tag_of(first) == f"{service.shared[1].epoch}:3"
    second = ask(service.apps[0], **with_token(tag_of(first), how))
    await second.task
    assert second.status in {204, 304}


async def test_a_version_whose_writer_died_before_it_raised_the_counter(
    service: Service, ask: Ask, virtual_clock: VirtualClock
) -> None:
    """The first reader raises the counter, which completes the polls of all workers."""
    service.version_of = lambda document: document["version"]
    token = await service.shared[0].token("document")
    waiting = ask(service.apps[0], **with_token(token, "since"))
    await asyncio.sleep(7)

    service.version += 1
    reader = ask(service.apps[1])
    await asyncio.gather(reader.task, waiting.task)

    assert virtual_clock.time() == 7
    assert tag_of(reader) == tag_of(waiting) == f"{service.shared[0].epoch}:4"


async def test_data_that_was_never_published_raises_no_counter(
    service: Service, ask: Ask, virtual_clock: VirtualClock
) -> None:
    """Reads must not fill the store with counters."""
    service.version = 0
    service.version_of = lambda document: document["version"]
    await service.shared[0].forget("document")
    await service.shared[1].forget("document")
    exchange = ask(service.apps[0])
    await exchange.task

    assert tag_of(exchange).endswith(":")
    assert await service.shared[1].value("document") is None


async def test_data_behind_the_counter_has_its_own_tag(
    service: Service, ask: Ask, virtual_clock: VirtualClock
) -> None:
    """The data may come from a lagging replica; the client polls again for the missing version."""
    service.version_of = lambda document: document["version"]
    await service.shared[0].advance("document", 4)
    exchange = ask(service.apps[0])
    await exchange.task
    again = ask(service.apps[1], **with_token(tag_of(exchange), "since"))
    await again.task

    assert tag_of(exchange) == f"{service.shared[0].epoch}:3"
    assert (again.status, virtual_clock.time()) == (200, 0)


async def test_a_publish_between_token_and_data_is_not_lost(service: Service, ask: Ask) -> None:
    """The tag is the older one: the client may get the version twice, but does not miss it."""
    exchange = ask(service.apps[0])
    while not exchange.task.done():
        service.version += 1
        await service.shared[1].advance("document", service.version)

    epoch, value = tag_of(exchange).split(":")
    assert (exchange.status, epoch) == (200, service.shared[0].epoch)
    assert int(value) <= exchange.json()["version"]


async def test_a_key_without_a_counter_is_waited_for(ask: Ask, virtual_clock: VirtualClock) -> None:
    """Its token has no value; the first publish completes the poll."""
    async with AsyncExitStack() as stack:
        service = Service(stack)
        await service.start(MemoryCounters())
        first = ask(service.apps[0])
        await first.task
        second = ask(service.apps[0], **with_token(tag_of(first), "if-none-match"))
        await asyncio.sleep(7)
        await service.shared[0].advance("document", 0)
        await second.task

    assert tag_of(first).endswith(":")
    assert (second.status, virtual_clock.time()) == (200, 7)


async def test_a_disconnect_cancels_the_wait(service: Service, ask: Ask) -> None:
    """The purgatory is empty afterwards."""
    token = await service.shared[0].token("document")
    exchange = ask(service.apps[0], **with_token(token, "since"))
    await asyncio.sleep(1)
    assert len(service.purgatories[0]) == 1

    exchange.disconnect()
    await exchange.task
    await asyncio.sleep(1)

    assert exchange.status == 499
    assert len(service.purgatories[0]) == 0


async def test_a_full_purgatory_refuses(service: Service, ask: Ask) -> None:
    """The answer has Retry-After."""
    token = await service.shared[0].token("document")
    waiting = [ask(service.apps[0], **with_token(token, "since")) for _ in range(2)]
    await asyncio.sleep(1)
    refused = ask(service.apps[0], **with_token(token, "since"))
    await refused.task

    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    await service.write(1)
    await asyncio.gather(*(each.task for each in waiting))
    assert [each.status for each in waiting] == [200, 200]


async def test_a_worker_that_stops_answers_its_polls(service: Service, ask: Ask) -> None:
    """They are answered as after the timeout; later ones are refused."""
    token = await service.shared[0].token("document")
    waiting = ask(service.apps[0], **with_token(token, "if-none-match"))
    await asyncio.sleep(1)

    await service.purgatories[0].aclose()
    await waiting.task
    late = ask(service.apps[0], **with_token(token, "if-none-match"))
    await late.task

    assert (waiting.status, tag_of(waiting), late.status) == (304, token, 503)


async def test_a_store_that_does_not_answer_costs_no_version(
    service: Service, ask: Ask, virtual_clock: VirtualClock
) -> None:
    """A client without a token gets 503; a waiting one is answered when the store is back."""
    token = await service.shared[0].token("document")
    waiting = ask(service.apps[0], **with_token(token, "since"))
    await asyncio.sleep(1)
    service.stores[0].go_down()

    refused = ask(service.apps[1])
    await refused.task
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert virtual_clock.time() == pytest.approx(6, abs=0.1)

    writing = asyncio.create_task(service.write(1))
    await asyncio.sleep(1)
    service.stores[0].come_back()
    await asyncio.gather(writing, waiting.task)
    assert (waiting.status, waiting.json()) == (200, {"version": 4})


async def test_a_store_that_is_lost_while_the_answer_is_read(service: Service, ask: Ask) -> None:
    """The counter cannot be raised to the version, so that the tag is the counter's."""
    token = await service.shared[0].token("document")

    def version_of(document: dict[str, int]) -> int:
        service.stores[0].go_down()
        return document["version"]

    service.version_of = version_of
    service.version += 1
    exchange = ask(service.apps[0])
    await exchange.task

    assert (exchange.json(), tag_of(exchange)) == ({"version": 4}, token)


async def one_poll(service: Service, ask: Ask, **options: Any) -> Exchange:
    """Send a request with other arguments to the first worker."""
    shared = service.shared[0]
    given: dict[str, Any] = {"answer": dict, "timeout": 30, "key": "document"} | options

    async def poll(request: Request) -> Response:
        return await long_poll_version(request, shared, given.pop("key"), **given)

    exchange = ask(Starlette(routes=[Route("/", poll)]))
    await exchange.task
    return exchange


def no_version(answer: object) -> None:
    """Return a value that is no version."""


def below_zero(answer: object) -> int:
    """Return a negative value, which is no version either."""
    return -1


async def test_an_answer_may_be_a_response(service: Service, ask: Ask) -> None:
    """It has no version; its tag is the counter's, or its own."""
    token = await service.shared[0].token("document")
    plain = await one_poll(
        service, ask, answer=lambda: PlainTextResponse("gone", 410), version=no_version
    )
    tagged = await one_poll(
        service, ask, answer=lambda: PlainTextResponse("five", headers={"etag": '"five"'})
    )

    assert (plain.status, tag_of(plain)) == (410, token)
    assert tagged.headers["etag"] == '"five"'


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"key": 7}, TypeError, "key must be a str, got 7"),
    ({"key": ""}, ValueError, "key must be 1 to 1024 bytes"),
    ({"answer": None}, TypeError, "answer must be a function, got None"),
    ({"version": 7}, TypeError, "version must be a plain function, got 7"),
    ({"version": no_version}, TypeError, "version must be an int from 0"),
    ({"version": below_zero}, ValueError, "version must be from 0 to"),
    ({"retry_after": -1}, ValueError, "retry_after must be"),
    ({"jitter": 31}, ValueError, "jitter must be"),
    ({"render": None}, TypeError, "render must be a plain function, got None"),
]


@pytest.mark.parametrize(("options", "error", "text"), WRONG)
async def test_a_wrong_argument_is_refused(
    service: Service, ask: Ask, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    """The error has the name, the value and the legal range."""
    with pytest.raises(error, match=f"^{text}"):
        await one_poll(service, ask, **options)


async def test_a_poll_by_condition_is_checked_by_every_worker(
    service: Service, ask: Ask, virtual_clock: VirtualClock
) -> None:
    """`long_poll` waits in the purgatory; shared counters check it from another worker."""
    news: list[str] = []

    async def poll(request: Request) -> Response:
        return await long_poll(
            request, service.purgatories[1], keys=["news"], ready=news.copy, timeout=30
        )

    exchange = ask(Starlette(routes=[Route("/", poll)]))
    await asyncio.sleep(7)
    news.append("rain")
    await service.shared[0].check_and_complete("news")
    await exchange.task

    assert (exchange.json(), virtual_clock.time()) == (["rain"], 7)


async def test_a_version_that_the_counter_has_reached_costs_no_write(
    service: Service,
    ask: Ask,
) -> None:
    """Otherwise every poll would write to the store."""
    service.version_of = lambda document: document["version"]
    written = service.shared[1].statistics().writes
    exchange = ask(service.apps[1])
    await exchange.task

    assert tag_of(exchange) == f"{service.shared[1].epoch}:3"
    assert service.shared[1].statistics().writes == written


async def test_version_zero_behind_the_counter_has_its_own_tag(
    service: Service,
    ask: Ask,
) -> None:
    """A lagging replica may have no document yet; the client polls again for the others."""
    service.version = 0
    service.version_of = itemgetter("version")
    exchange = ask(service.apps[0])
    await exchange.task

    assert tag_of(exchange) == f"{service.shared[0].epoch}:0"
