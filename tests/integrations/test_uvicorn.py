"""The middleware and a heartbeat on a real server, on the real clock."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect

from aiowheel.integrations.asgi import SlowRequestMiddleware
from aiowheel.integrations.connections import heartbeat

from .disconnects import warnings_logged

pytestmark = [pytest.mark.one_build, pytest.mark.realtime]


@asynccontextmanager
async def served(app: Starlette) -> AsyncGenerator[int]:
    """Serve *app* and yield its port; check afterwards that no warning was logged."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, access_log=False, ws="websockets-sansio")
    server = uvicorn.Server(config)
    with warnings_logged() as logged:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield listener.getsockname()[1]
        server.should_exit = True
        await serving
    assert logged == []


async def test_a_slow_body_is_answered_and_the_connection_closed() -> None:
    """The client gets 408 while it still sends."""

    async def count(request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())))

    app = Starlette(
        routes=[Route("/", count, methods=["POST"])],
        middleware=[Middleware(SlowRequestMiddleware, idle=0.05)],
    )
    async with served(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nbut")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()

    assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert answer.endswith(b"\r\n\r\nthe request body came too slowly")


async def test_a_websocket_whose_client_does_not_read_is_closed() -> None:
    """ASGI has no pings: a message is the ping, and any message is an answer."""
    ended: list[tuple[str, str]] = []
    over = asyncio.Event()

    async def talk(websocket: WebSocket) -> None:
        await websocket.accept()
        name = await websocket.receive_text()
        patience = 0.2 if name == "deaf" else 60  # a slow machine is no deaf client
        try:
            async with heartbeat(
                lambda: websocket.send_text("ping"), interval=0.05, timeout=patience
            ) as beat:
                async for _ in websocket.iter_text():
                    beat.seen()
            ended.append((name, "left"))
        except TimeoutError:
            ended.append((name, "given up"))
            over.set()

    async with (
        served(Starlette(routes=[WebSocketRoute("/", talk)])) as port,
        connect(f"ws://127.0.0.1:{port}/", ping_interval=None) as lively,
        connect(f"ws://127.0.0.1:{port}/", ping_interval=None) as deaf,
    ):
        await lively.send("lively")
        await deaf.send("deaf")
        deaf.transport.pause_reading()
        while not over.is_set():
            assert await lively.recv() == "ping"
            await lively.send("pong")
        deaf.transport.abort()

    assert ended == [("deaf", "given up"), ("lively", "left")]
