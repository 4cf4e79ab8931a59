"""aiohttp, unchanged, on a loop whose timers are on the wheel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("aiohttp")
from aiohttp import ClientSession, ClientTimeout, WSMsgType, web

pytestmark = [pytest.mark.one_build, pytest.mark.realtime]

ArmedBy = Callable[[Callable[[], Coroutine[Any, Any, None]]], set[str]]
HEARTBEAT = 0.1  # aiohttp waits half of it for the pong, unless a test sets a longer wait
PONG_TIMEOUT = 60.0  # the longer wait: a slow machine is not a dead peer
SERVER_PING = "aiohttp.web_ws.WebSocketResponse._send_heartbeat"
CLIENT_PING = "aiohttp.client_ws.ClientWebSocketResponse._send_heartbeat"


@asynccontextmanager
async def serving(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]], **options: Any
) -> AsyncGenerator[str, None]:
    """Serve *handler* and yield the address."""
    app = web.Application()
    app.router.add_get("/", handler)
    runner = web.AppRunner(app, **options)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}/"
    finally:
        await runner.cleanup()


def test_a_server_sends_heartbeats_to_a_silent_client(armed_by: ArmedBy) -> None:
    """Heartbeats are sent while pongs come; data sent afterwards still arrives."""

    async def handler(request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(heartbeat=HEARTBEAT)
        websocket._pong_heartbeat = PONG_TIMEOUT
        await websocket.prepare(request)
        assert await websocket.receive_str() == "three pings came"
        # The server does not close: aiohttp's server side would arm its heartbeat again for the
        # reply.
        assert (await websocket.receive()).type is WSMsgType.CLOSE
        return websocket

    async def program() -> None:
        began = asyncio.get_running_loop().time()
        async with (
            serving(handler) as address,
            ClientSession() as session,
            session.ws_connect(address, autoping=False) as websocket,
        ):
            for _ in range(3):
                message = await websocket.receive()
                assert message.type is WSMsgType.PING
                await websocket.pong(message.data)
            assert asyncio.get_running_loop().time() - began >= HEARTBEAT * 3
            await websocket.send_str("three pings came")

    armed = armed_by(program)

    assert SERVER_PING in armed


def test_a_client_sends_heartbeats_to_a_silent_server(armed_by: ArmedBy) -> None:
    """The same for the client."""

    async def handler(request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(autoping=False)
        await websocket.prepare(request)
        for _ in range(3):
            message = await websocket.receive()
            assert message.type is WSMsgType.PING
            await websocket.pong(message.data)
        await websocket.send_str("three pings came")
        await websocket.close()
        return websocket

    async def program() -> None:
        began = asyncio.get_running_loop().time()
        async with (
            serving(handler) as address,
            ClientSession() as session,
            session.ws_connect(address, heartbeat=HEARTBEAT) as websocket,
        ):
            websocket._pong_heartbeat = PONG_TIMEOUT
            assert await websocket.receive_str() == "three pings came"
            assert asyncio.get_running_loop().time() - began >= HEARTBEAT * 3

    armed = armed_by(program)

    assert CLIENT_PING in armed


def test_a_server_closes_a_websocket_whose_client_is_dead(armed_by: ArmedBy) -> None:
    """It does so after heartbeat and pong timeout, not before, and with aiohttp's own error."""
    ends: list[tuple[float, object]] = []

    async def handler(request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(heartbeat=HEARTBEAT)
        began = asyncio.get_running_loop().time()
        await websocket.prepare(request)
        await websocket.receive()
        ends.append((asyncio.get_running_loop().time() - began, websocket.exception()))
        assert websocket.closed
        return websocket

    async def program() -> None:
        async with (
            serving(handler) as address,
            ClientSession() as session,
            session.ws_connect(address, autoping=False) as websocket,
        ):
            assert (await websocket.receive()).type is WSMsgType.PING
            await websocket.receive()  # no pong: the next message is the end

    armed = armed_by(program)

    ((seconds, error),) = ends
    assert seconds >= HEARTBEAT * 1.5
    assert isinstance(error, TimeoutError)
    assert {SERVER_PING, "aiohttp.web_ws.WebSocketResponse._pong_not_received"} <= armed


def test_a_client_closes_a_websocket_whose_server_is_dead(armed_by: ArmedBy) -> None:
    """The same for the client."""

    async def handler(request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(autoping=False)
        await websocket.prepare(request)
        assert (await websocket.receive()).type is WSMsgType.PING
        await websocket.receive()
        return websocket

    async def program() -> None:
        async with serving(handler) as address, ClientSession() as session:
            began = asyncio.get_running_loop().time()
            async with session.ws_connect(address, heartbeat=HEARTBEAT) as websocket:
                message = await websocket.receive()
                seconds = asyncio.get_running_loop().time() - began
                assert message.type is WSMsgType.ERROR
                assert isinstance(websocket.exception(), TimeoutError)
                assert seconds >= HEARTBEAT * 1.5

    armed = armed_by(program)

    assert "aiohttp.client_ws.ClientWebSocketResponse._pong_not_received" in armed


def test_a_request_timeout_ends_only_slow_requests(armed_by: ArmedBy) -> None:
    """Of many requests the slow ones fail, none early; the other connections continue."""

    async def handler(request: web.Request) -> web.Response:
        await asyncio.sleep(float(request.query.get("seconds", 0)))
        return web.Response(text="done")

    async def program() -> None:
        timeout = ClientTimeout(total=1.5)
        async with (
            serving(handler, handler_cancellation=True) as address,
            ClientSession(timeout=timeout) as session,
        ):
            loop = asyncio.get_running_loop()

            async def get(seconds: float) -> str:
                began = loop.time()
                try:
                    async with session.get(address, params={"seconds": str(seconds)}) as response:
                        return await response.text()
                except TimeoutError:
                    assert loop.time() - began >= 1.5
                    return "late"

            answers = await asyncio.gather(*(get(30 * (i % 5 == 0)) for i in range(50)))
            assert answers == ["late" if i % 5 == 0 else "done" for i in range(50)]
            assert await get(0) == "done"

    armed = armed_by(program)

    assert "aiohttp.helpers.TimeoutHandle.__call__" in armed


def test_a_silent_keep_alive_connection_is_closed(armed_by: ArmedBy) -> None:
    """The server's own timer closes it after `keepalive_timeout` and not before."""

    async def handler(_: web.Request) -> web.Response:
        return web.Response(text="done")

    async def program() -> None:
        async with serving(handler, keepalive_timeout=0.2) as address:
            _, _, where = address.rstrip("/").rpartition("/")
            host, _, port = where.partition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            began = asyncio.get_running_loop().time()
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readuntil(b"done")).startswith(b"HTTP/1.1 200")
            assert await reader.read() == b""
            assert asyncio.get_running_loop().time() - began >= 0.2
            writer.close()
            await writer.wait_closed()

    armed = armed_by(program)

    assert "aiohttp.web_protocol.RequestHandler._process_keepalive" in armed
