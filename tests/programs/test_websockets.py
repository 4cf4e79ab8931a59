"""The websockets library, unchanged, on a loop whose timers are on the wheel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

pytest.importorskip("websockets", minversion="14")
from websockets.asyncio.client import connect
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

pytestmark = [pytest.mark.one_build, pytest.mark.realtime]

ArmedBy = Callable[[Callable[[], Coroutine[Any, Any, None]]], set[str]]
INTERVAL, PATIENCE = 0.1, 0.15
TIMEOUT = "asyncio.timeouts.Timeout._on_timeout"
SLEEP = "asyncio.futures._set_result_unless_cancelled"


def address_of(server: Server) -> str:
    """Return the address for clients."""
    host, port = next(iter(server.sockets)).getsockname()[:2]
    return f"ws://{host}:{port}"


def test_keepalive_pings_are_sent_and_answered(armed_by: ArmedBy) -> None:
    """A client that sends nothing stays connected, and its latency is measured."""

    async def handler(connection: ServerConnection) -> None:
        while connection.latency == 0:  # noqa: ASYNC110 - the first pong sets it
            await asyncio.sleep(0.01)
        await connection.send("pong came")

    async def program() -> None:
        began = asyncio.get_running_loop().time()
        async with (
            serve(handler, "127.0.0.1", 0, ping_interval=INTERVAL, ping_timeout=30) as server,
            connect(address_of(server), ping_interval=None) as client,
        ):
            assert await client.recv() == "pong came"
            assert asyncio.get_running_loop().time() - began >= INTERVAL

    armed = armed_by(program)

    assert {SLEEP, TIMEOUT} <= armed


def test_a_dead_client_is_closed_for_its_missing_pong(armed_by: ArmedBy) -> None:
    """The close has the library's code 1011 and comes after interval and timeout."""
    ends: list[tuple[float, int, str]] = []
    ended = asyncio.Event()

    async def handler(connection: ServerConnection) -> None:
        began = asyncio.get_running_loop().time()
        with pytest.raises(ConnectionClosed) as closed:
            await connection.recv()
        sent = closed.value.sent
        assert sent is not None
        ends.append((asyncio.get_running_loop().time() - began, sent.code, sent.reason))
        ended.set()

    async def program() -> None:
        options = {"ping_interval": INTERVAL, "ping_timeout": PATIENCE, "close_timeout": 0.05}
        async with (
            serve(handler, "127.0.0.1", 0, **options) as server,  # type: ignore[arg-type]
            connect(address_of(server), ping_interval=None, close_timeout=0.05) as client,
        ):
            client.transport.pause_reading()  # it receives no pings and sends no pongs
            await ended.wait()
            client.transport.resume_reading()

    armed_by(program)

    ((seconds, code, reason),) = ends
    assert seconds >= INTERVAL + PATIENCE
    assert (code, reason) == (1011, "keepalive ping timeout")


def test_an_unanswered_closing_handshake_ends_after_its_timeout(armed_by: ArmedBy) -> None:
    """`close_timeout` is a timeout_at inside the library."""
    took: list[float] = []
    ended = asyncio.Event()

    async def handler(connection: ServerConnection) -> None:
        assert await connection.recv() == "deaf from now on"
        began = asyncio.get_running_loop().time()
        await connection.close()
        took.append(asyncio.get_running_loop().time() - began)
        ended.set()

    async def program() -> None:
        async with (
            serve(handler, "127.0.0.1", 0, ping_interval=None, close_timeout=PATIENCE) as server,
            connect(address_of(server), ping_interval=None, close_timeout=0.05) as client,
        ):
            client.transport.pause_reading()
            await client.send("deaf from now on")
            await ended.wait()
            client.transport.resume_reading()

    armed = armed_by(program)

    assert took[0] >= PATIENCE
    assert TIMEOUT in armed
