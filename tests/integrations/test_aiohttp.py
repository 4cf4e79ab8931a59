"""Long polls on aiohttp's server, over real sockets and on a virtual clock."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from aiowheel.integrations.aiohttp import add_wheel

pytest.importorskip("aiohttp", reason="aiohttp is not installed: see the extra `aiohttp`")

from aiohttp import ClientSession

from aiowheel import Outcome, Purgatory, TimerClosedError
from aiowheel.integrations.aiohttp import (
    PURGATORY,
    SHARED,
    TIMER,
    long_poll,
    long_poll_version,
)
from aiowheel.shared import SharedCounters
from aiowheel.testing import MemoryCounters, VirtualClock

# The virtual clock must not jump while data is on its way through the loopback interface.
pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time(patience=0.2), pytest.mark.realtime]


class Service:
    """An application with items and requests that wait for them, and a client.

    Attributes:
        runner: The server.
        client: A client with the address of the server.
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
        """The purgatory of the application."""
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
        """Add an item; return the number of answered polls."""
        self.items.append(item)
        return self.purgatory.check_and_complete("news") + self.purgatory.advance(
            "items", len(self.items)
        )

    async def until_waiting(self, count: int) -> None:
        """Wait until that many polls are pending, without letting time pass."""
        while len(self.purgatory) != count:  # noqa: ASYNC110 - sockets have no event to wait for
            await asyncio.sleep(0)


@asynccontextmanager
async def running(service: Service, *, tells: bool = True) -> AsyncGenerator[str]:
    """Run the service on a free port; yield its address."""
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
    """URL of the server."""
    host, port = service.runner.addresses[0][:2]
    return f"http://{host}:{port}"


async def test_a_poll_waits_and_is_answered(virtual_clock: VirtualClock) -> None:
    """It is answered at the publish; a later poll finds the item at once."""
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
    """The answer comes after 30 seconds."""
    service = Service()
    async with running(service):
        response = await service.client.get("/")

        assert response.status == 204
        assert virtual_clock.time() == pytest.approx(30, abs=0.01)
        assert (len(service.purgatory), service.purgatory.watched) == (0, 0)


async def test_a_disconnect_cancels_the_operation(virtual_clock: VirtualClock) -> None:
    """No error is logged."""
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


async def test_a_disconnect_after_a_large_body_cancels_the_operation(
    virtual_clock: VirtualClock,
) -> None:
    """Without a reader of the body, aiohttp would stop receiving and miss the disconnect."""
    service = Service()
    ended = asyncio.Event()

    async def upload(request: web.Request) -> web.StreamResponse:
        try:
            return await service.poll(request)
        finally:
            ended.set()

    service.app.router.add_post("/", upload)
    async with running(service):
        _, writer = await asyncio.open_connection(*service.runner.addresses[0][:2])
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
        writer.write(bytes(1_000_000))
        await service.until_waiting(1)
        (operation,) = service.purgatory.pending("news")

        writer.transport.abort()
        await ended.wait()

        assert operation.outcome is Outcome.CANCELLED
        assert virtual_clock.time() == 0


async def test_polls_above_max_pending_are_refused() -> None:
    """The answer is 503 with Retry-After."""
    service = Service()
    async with running(service):
        waiting = [asyncio.create_task(service.client.get("/")) for _ in range(2)]
        await service.until_waiting(2)

        refused = await service.client.get("/")

        assert (refused.status, refused.headers["Retry-After"]) == (503, "7")
        service.publish("rain")
        assert [(await each).status for each in waiting] == [200, 200]


async def test_stopping_the_server_answers_all_polls(virtual_clock: VirtualClock) -> None:
    """They are answered at once; then the timer is closed."""
    service = Service()
    async with running(service):
        waiting = [asyncio.create_task(service.client.get("/")) for _ in range(2)]
        await service.until_waiting(2)

        await service.runner.cleanup()

        assert [(await each).status for each in waiting] == [204, 204]
        assert virtual_clock.time() < 1
        with pytest.raises(TimerClosedError):
            service.app[TIMER].call_later(1, print)


async def test_a_poll_cancelled_by_the_application_is_503() -> None:
    """`cancel_for_key` does not cancel the handler."""
    service = Service()
    async with running(service):
        polling = asyncio.create_task(service.client.get("/"))
        await service.until_waiting(1)

        service.purgatory.cancel_for_key("news")

        assert (await polling).status == 503


async def test_a_server_without_handler_cancellation_is_refused() -> None:
    """The operation of a disconnected client would otherwise stay pending."""
    service = Service()
    async with running(service, tells=False):
        assert (await service.client.get("/")).status == 500
        assert len(service.purgatory) == 0


async def test_versions_by_etag_and_by_since() -> None:
    """Without news the answers are 304 and 204; a malformed version gets 400."""
    service = Service()
    async with running(service):
        service.publish("rain")
        first = await service.client.get("/version")
        assert (await first.json(), first.headers["ETag"]) == (["rain"], '"1"')

        tag = {"If-None-Match": first.headers["ETag"]}
        assert (await service.client.get("/version", headers=tag)).status == 304
        lines = [("If-None-Match", '"0"'), *tag.items()]
        assert (await service.client.get("/version", headers=lines)).status == 304
        assert (await service.client.get("/version?since=1")).status == 204
        bad = await service.client.get("/version?since=-1")
        assert (bad.status, (await bad.text())[:22]) == (400, "since must be a number")

        polling = asyncio.create_task(service.client.get("/version?since=1"))
        await service.until_waiting(1)
        assert service.publish("sun") == 1
        assert (await polling).headers["ETag"] == '"2"'


async def test_a_version_made_with_the_timeout_is_not_lost() -> None:
    """The tag of a version is never sent without the version."""
    service = Service()
    async with running(service):
        polling = asyncio.create_task(service.client.get("/version?since=0"))
        await service.until_waiting(1)

        await (
            service.purgatory.aclose()
        )  # the poll expires; its task continues in the next loop iteration
        service.items.append("rain")

        response = await polling
        assert (response.status, response.headers["ETag"]) == (200, '"1"')
        assert await response.json() == ["rain"]


async def tell(*_: object) -> str:
    """A coroutine function, where a plain function is required."""
    return "news"


@pytest.mark.parametrize("name", ["ready", "on_timeout", "render", "version", "answer"])
async def test_a_coroutine_function_is_refused(name: str) -> None:
    """Nothing waits; the error names the argument and the remedy."""
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
    """They are closed before and after."""
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


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"tick": 0}, ValueError, "tick must be"),
        ({"max_pending": 0}, ValueError, "max_pending must be"),
        ({"name": 7}, TypeError, "name must be"),
        ({"counters": "redis"}, TypeError, "counters must be"),
    ],
)
def test_a_wrong_argument_is_refused_before_the_start(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    """The call raises, not the start of the server."""
    app = web.Application()
    with pytest.raises(error, match=f"^{text}"):
        add_wheel(app, **options)
    assert len(app.cleanup_ctx) == 0
