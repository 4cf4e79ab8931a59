"""Fuzz targets: requests and websocket frames that reach `aiowheel serve`.

The bytes go through the service's own protocols, on a transport in memory and in virtual time.
Every input runs on a new service, so that a failure depends on one input only.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.server import ServerState

from aiowheel.serve import Limits, TopicApp
from aiowheel.serve._server import _config
from aiowheel.testing import VirtualClockEventLoop

from .draw import Draw

METHODS = ("GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "GET", "GET")
PATHS = ("/topics/", "/topics/news", "/", "/live", "/health", "/metrics", "/openapi.json", "/x/")
PARAMETERS = ("since", "epoch", "timeout", "Since", "x")
HEADERS = (
    "Accept: text/event-stream",
    "Last-Event-ID: ",
    "Origin: ",
    "Host: ",
    "Content-Type: application/json",
    "Content-Encoding: gzip",
    "Content-Length: ",
    "Transfer-Encoding: chunked",
    "Expect: 100-continue",
    "Authorization: Bearer ",
    "Sec-Fetch-Site: cross-site",
    "X-Forwarded-For: ",
    "Connection: close",
)
HANDSHAKE = (
    b"GET /topics/news HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Version: 13\r\n\r\n"
)


def connection(data: bytes) -> None:
    """Send any bytes, in any pieces."""
    draw = Draw(data)
    sizes = [draw.number(1, 200) for _ in range(draw.number(0, 4))]
    _serve(_cut(draw.rest(), sizes))


def request(data: bytes) -> None:
    """Send complete requests with parameters, headers and bodies of any kind."""
    draw = Draw(data)
    _serve([_request(draw) for _ in range(draw.number(1, 3))])


def frames(data: bytes) -> None:
    """Send a websocket handshake, and then any bytes in any pieces."""
    draw = Draw(data)
    sizes = [draw.number(1, 200) for _ in range(draw.number(0, 4))]
    _serve([HANDSHAKE, *_cut(draw.rest(), sizes)])


def _cut(content: bytes, sizes: list[int]) -> list[bytes]:
    pieces: list[bytes] = []
    for size in sizes:
        pieces.append(content[:size])
        content = content[size:]
    return [piece for piece in (*pieces, content) if piece]


def _request(draw: Draw) -> bytes:
    method, path = draw.choice(METHODS), draw.choice(PATHS)
    if path.endswith("/") and draw.number(0, 1):
        path += _line(draw.text(20))
    query = [f"{draw.choice(PARAMETERS)}={_line(draw.text(12))}" for _ in range(draw.number(0, 3))]
    lines = [f"{method} {path}{'?' if query else ''}{'&'.join(query)} HTTP/1.1"]
    for _ in range(draw.number(0, 4)):
        header = draw.choice(HEADERS)
        lines.append(header + _line(draw.text(20)) if header.endswith(" ") else header)
    body = draw.take(draw.number(0, 40))
    if not any(line.startswith(("Host", "Content-Length", "Transfer")) for line in lines):
        lines += ["Host: localhost", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _line(text: str) -> str:
    return "".join(sign for sign in text if sign not in "\r\n\0 ")


class Wire(asyncio.Transport):
    """A transport whose peer accepts everything."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.sent = bytearray()
        self.closing = False
        self.protocol: Any = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Store *data*."""
        if not self.closing:
            self.sent += data

    def close(self) -> None:
        """Close at once, because no buffer holds data; the protocol is called one turn later."""
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self._lose)

    def _lose(self) -> None:
        self.protocol.connection_lost(None)

    abort = close

    def is_closing(self) -> bool:
        """Return whether it is closed."""
        return self.closing

    def set_protocol(self, protocol: Any) -> None:
        """Replace the protocol, for example by a websocket."""
        self.protocol = protocol

    def get_protocol(self) -> Any:
        """Return the protocol that receives the data."""
        return self.protocol

    def get_write_buffer_size(self) -> int:
        """Return 0."""
        return 0

    def pause_reading(self) -> None:
        """Do nothing: the test delivers the data piece by piece."""

    def resume_reading(self) -> None:
        """Do nothing."""


class Errors(logging.Handler):
    """A handler that keeps the errors that uvicorn logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text."""
        self.texts.append(self.format(record))


def _serve(pieces: list[bytes]) -> None:
    """Deliver the pieces on one connection, and check what the service does."""
    errors = Errors()
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(errors)
    try:
        with asyncio.Runner(loop_factory=lambda: VirtualClockEventLoop(patience=0)) as runner:
            sent = runner.run(_converse(pieces, errors))
    finally:
        logger.removeHandler(errors)
    assert errors.texts == [], errors.texts
    assert b"HTTP/1.1 500" not in sent, sent
    assert not sent or sent.startswith(b"HTTP/1.1 "), sent


async def _converse(pieces: list[bytes], errors: Errors) -> bytes:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.texts.append(str(context)))
    limits = Limits(body_bytes=100, topics=5, timeout=5, heartbeat=5.0, receive_timeout=2.0)
    app = TopicApp(limits)
    config = _config(app, limits, None)
    config.load()
    state = ServerState()
    async with app._app.router.lifespan_context(app._app) as shared:
        wire = Wire()
        wire.protocol = config.http_protocol_class(config, state, dict(shared or {}), loop)  # type: ignore[call-arg]
        wire.protocol.connection_made(wire)
        for piece in pieces:
            if not wire.closing:
                wire.protocol.data_received(piece)
            await asyncio.sleep(0.1)
        await asyncio.sleep(30)
        wire.close()
        await asyncio.sleep(30)
        waiting = len(app._service.purgatory)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        named = [task.get_name() for task in left if task in state.tasks]
        assert (waiting, named, len(state.connections)) == (0, [], 0)
    return bytes(wire.sent)
