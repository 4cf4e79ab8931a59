"""The long poll on aiohttp's server, over real sockets and on a virtual clock."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed: see the extra `aiohttp`")

from aiohttp import ClientSession, web

from aiowheel import Outcome, Purgatory, TimerClosedError
from aiowheel.integrations.aiohttp import (
    PURGATORY,
    SHARED,
    TIMER,
    add_wheel,
    long_poll,
    long_poll_version,
)
from aiowheel.shared import SharedCounters
from aiowheel.testing import MemoryCounters, VirtualClock

# On a busy machine even the loopback takes a moment: the clock does not jump before.
pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time(patience=0.2), pytest.mark.realtime]


class Service:
    """Items, requests that wait for them, and a client.

    Attributes:
        runner: The server.
        client: Knows the address; paths are enough.
    """

    def __init__(self) -> None:
        self.items: list[str] = []
        self.app = web.Application()
        add_wheel(self.app, "polls", max_pending=2)
        self.app.router.add_get("/", self.poll)
        self.app.router.add_get("/version", self.poll_version)
        self.runner: web.AppRunner
        self.client: ClientSession

    @property
    def purgatory(self) -> Purgatory:
        """Of the application."""
        return self.app[PURGATORY]

    async def poll(self, request: web.Request) -> web.StreamResponse:
        """Wait for an item."""
        purgatory = request.config_dict[PURGATORY]
        return await long_poll(
            request, purgatory, keys=["news"], ready=self.items.copy, timeout=30, retry_after=7
        )

    async def poll_version(self, request: web.Request) -> web.StreamResponse:
        """Wait for more items than the client has seen."""
        return await long_poll_version(
            request,
            self.purgatory,
            "items",
            version=lambda: len(self.items),
            answer=self.items.copy,
            timeout=30,
        )

    def publish(self, item: str) -> int:
        """Something happens; how many were answered."""
        self.items.append(item)
        return self.purgatory.check_and_complete("news") + self.purgatory.advance(
            "items", len(self.items)
        )

    async def until_waiting(self, count: int) -> None:
        """Until so many wait; no time passes meanwhile."""
        while len(self.purgatory) != count:  # noqa: ASYNC110 - sockets have no event to wait for
            await asyncio.sleep(0)


@asynccontextmanager
async def running(service: Service, *, tells: bool = True) -> AsyncGenerator[str]:
    """The service on a free port; its address."""
    service.runner = web.AppRunner(service.app, handler_cancellation=tells)
    await service.runner.setup()
    site = web.TCPSite(service.runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with ClientSession(address(service)) as service.client:
            yield address(service)
    finally:
        await service.runner.cleanup()


def address(service: Service) -> str:
    """Where it listens."""
    host, port = service.runner.addresses[0][:2]
    return f"http://{host}:{port}"


async def test_a_poll_waits_and_is_answered(virtual_clock: VirtualClock) -> None:
    """At the time of the news; the next one finds it there."""
    service = Service()
    async with running(service):
        polling = asyncio.create_task(service.client.get("/"))
        await service.until_waiting(1)
        assert service.publish("rain") == 1

        response = await polling
        assert (response.status, await response.json()) == (200, ["rain"])
        assert response.headers["Cache-Control"] == "no-store"
        assert await (await service.client.get("/")).json() == ["rain"]
        assert virtual_clock.time() == 0


async def test_the_timeout_answers_204(virtual_clock: VirtualClock) -> None:
    """After its 30 seconds."""
    service = Service()
    async with running(service):
        response = await service.client.get("/")

        assert response.status == 204
        assert virtual_clock.time() == pytest.approx(30, abs=0.01)
        assert (len(service.purgatory), service.purgatory.watched) == (0, 0)


async def test_a_client_that_disconnects_leaves_at_once(virtual_clock: VirtualClock) -> None:
    """Its operation is cancelled, without an error."""
    service = Service()
    async with running(service):
        host, port = service.runner.addresses[0][:2]
        peer = socket.create_connection((host, port))
        peer.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await service.until_waiting(1)
        (operation,) = service.purgatory.pending("news")

        peer.close()
        await service.until_waiting(0)

        assert operation.outcome is Outcome.CANCELLED
        assert virtual_clock.time() == 0


async def test_more_than_max_pending_are_told_to_come_back() -> None:
    """With 503 and a time."""
    service = Service()
    async with running(service):
        waiting = [asyncio.create_task(service.client.get("/")) for _ in range(2)]
        await service.until_waiting(2)

        refused = await service.client.get("/")

        assert (refused.status, refused.headers["Retry-After"]) == (503, "7")
        service.publish("rain")
        assert [(await each).status for each in waiting] == [200, 200]


async def test_stopping_the_server_answers_everybody(virtual_clock: VirtualClock) -> None:
    """At once, not after their timeouts; then the timer is closed."""
    service = Service()
    async with running(service):
        waiting = [asyncio.create_task(service.client.get("/")) for _ in range(2)]
        await service.until_waiting(2)

        await service.runner.cleanup()

        assert [(await each).status for each in waiting] == [204, 204]
        assert virtual_clock.time() < 1
        with pytest.raises(TimerClosedError):
            service.app[TIMER].call_later(1, print)


async def test_a_wait_that_the_application_gives_up_is_503() -> None:
    """`cancel_for_key` is no cancellation of the handler."""
    service = Service()
    async with running(service):
        polling = asyncio.create_task(service.client.get("/"))
        await service.until_waiting(1)

        service.purgatory.cancel_for_key("news")

        assert (await polling).status == 503


async def test_a_server_that_does_not_tell_is_refused() -> None:
    """Else the operation of a client that left would wait for nobody."""
    service = Service()
    async with running(service, tells=False):
        assert (await service.client.get("/")).status == 500
        assert len(service.purgatory) == 0


async def test_versions_by_etag_and_by_since() -> None:
    """304 to the one, 204 to the other, 400 to what is no version; an answer has its tag."""
    service = Service()
    async with running(service):
        service.publish("rain")
        first = await service.client.get("/version")
        assert (await first.json(), first.headers["ETag"]) == (["rain"], '"1"')

        tag = {"If-None-Match": first.headers["ETag"]}
        assert (await service.client.get("/version", headers=tag)).status == 304
        assert (await service.client.get("/version?since=1")).status == 204
        bad = await service.client.get("/version?since=-1")
        assert (bad.status, (await bad.text())[:22]) == (400, "since must be a number")

        polling = asyncio.create_task(service.client.get("/version?since=1"))
        await service.until_waiting(1)
        assert service.publish("sun") == 1
        assert (await polling).headers["ETag"] == '"2"'


async def test_a_version_made_in_the_turn_of_the_timeout_is_not_lost() -> None:
    """Its tag is never sent without it."""
    service = Service()
    async with running(service):
        polling = asyncio.create_task(service.client.get("/version?since=0"))
        await service.until_waiting(1)

        await service.purgatory.aclose()  # the poll expires; it goes on a turn later
        service.items.append("rain")

        response = await polling
        assert (response.status, response.headers["ETag"]) == (200, '"1"')
        assert await response.json() == ["rain"]


async def tell(*_: object) -> str:
    """A coroutine function, where a plain function is due."""
    return "news"


@pytest.mark.parametrize("name", ["ready", "on_timeout", "render", "version", "answer"])
async def test_a_coroutine_function_is_refused(name: str) -> None:
    """Before anything waits; the text names the argument and says what to do."""
    service = Service()
    errors: list[str] = []
    wrong: dict[str, Any] = {name: tell}

    async def poll(request: web.Request) -> web.StreamResponse:
        try:
            if name in {"version", "answer"}:
                functions: dict[str, Any] = {"version": int, "answer": str, **wrong}
                return await long_poll_version(
                    request, service.purgatory, "items", timeout=30, **functions
                )
            functions = {"ready": list, **wrong}
            return await long_poll(
                request, service.purgatory, keys=["news"], timeout=None, **functions
            )
        except TypeError as error:
            errors.append(str(error))
            raise

    service.app.router.add_get("/wrong", poll)
    async with running(service):
        assert (await service.client.get("/wrong")).status == 500
        assert len(service.purgatory) == 0

    (text,) = errors
    assert text.startswith(f"{name} must be a plain function, got the coroutine function")
    assert "await what it needs beforehand" in text


async def test_shared_counters_are_open_while_the_application_runs() -> None:
    """And not before or after."""
    app = web.Application()
    add_wheel(app, counters=MemoryCounters())
    runner = web.AppRunner(app)
    await runner.setup()
    shared = app[SHARED]

    assert (await shared.advance("doc", 1)).endswith(":1")

    await runner.cleanup()
    assert shared.closed


async def test_versions_of_shared_counters() -> None:
    """The tag is the token; a publish in another worker completes the poll."""
    store = MemoryCounters()
    app = web.Application()
    add_wheel(app, counters=store)

    async def read() -> str:
        return "document"

    async def gone() -> web.Response:
        return web.Response(status=410)

    async def poll(request: web.Request) -> web.StreamResponse:
        answer = gone if "gone" in request.query else read
        return await long_poll_version(
            request, request.config_dict[SHARED], "doc", answer=answer, timeout=30
        )

    app.router.add_get("/", poll)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listener).start()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with (
        Purgatory() as purgatory,
        SharedCounters(purgatory, store.beside()) as other,
        ClientSession(address) as client,
    ):
        token = await other.advance("doc", 1)
        first = await client.get("/")
        assert (await first.json(), first.headers["ETag"]) == ("document", f'"{token}"')
        tag = {"If-None-Match": first.headers["ETag"]}
        assert (await client.get("/", headers=tag)).status == 304
        assert (await client.get("/", params={"since": token})).status == 204
        assert (await client.get("/?since=1")).status == 400
        assert (await client.get("/?gone")).headers["ETag"] == f'"{token}"'

        polling = asyncio.create_task(client.get("/", headers=tag))
        while len(app[PURGATORY]) == 0:  # noqa: ASYNC110 - sockets have no event to wait for
            await asyncio.sleep(0)
        token = await other.advance("doc", 2)
        assert (await polling).headers["ETag"] == f'"{token}"'

        await app[PURGATORY].aclose()
        assert (await client.get("/", headers=tag)).status == 503
    await runner.cleanup()
