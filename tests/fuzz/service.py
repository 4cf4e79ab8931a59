"""Fuzz targets: requests and websocket frames that reach `aiowheel serve`.

The bytes go through the service's own protocols, on a transport in memory and in virtual time.
Every input runs on a new service, so that a failure depends on one input only.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple
from unittest.mock import AsyncMock, patch

from uvicorn.server import ServerState

from aiowheel.errors import BadInputError, PurgatoryClosedError, StoreUnavailableError
from aiowheel.serve import Access, Limits, TopicApp, _parameters
from aiowheel.serve._protocol import TopicProtocol
from aiowheel.serve._refusal import Refusal
from aiowheel.serve._server import _config
from aiowheel.testing import VirtualClockEventLoop

from .draw import Draw, check_reason

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
    "Sec-Fetch-Dest: document",
    "Access-Control-Request-Method: POST",
    "Origin: https://a.example.com",
    "Origin: http://localhost",
    "Host: a.example.com",
    "Host: example.com:80",
    "Authorization: Bearer 0123456789abcdef",
    "Authorization: Bearer fedcba9876543210",
    "Last-Event-ID: 00000000-5",
)
TARGETS = ("/topics/news", "/topics/news?since=x", "/topics/!", "/topics/news?since=5", "/x")
HANDSHAKE_FOR = (
    "GET {} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    "Sec-WebSocket-Version: 13\r\n\r\n"
)
HANDSHAKE = HANDSHAKE_FOR.format("/topics/news").encode()
DELAYS = (0.1, 0.0, 3.0)  # seconds; the last is more than the receive timeout
LIMITS = Limits(
    name_length=15, connections=2, body_bytes=100, topics=5, timeout=5, heartbeat=5.0,
    receive_timeout=2.0,
)  # fmt: skip
NONE: frozenset[str] = frozenset()
#: Values for the fields of `Access`, malformed ones too.
HOSTS: tuple[Any, ...] = (
    *(NONE, {"*"}, {"*.example.com"}, {"example.com", "::1"}, {"Upper"}, {5}, ["*"]),
)
ORIGINS: tuple[Any, ...] = (NONE, {"*"}, {"null"}, {"https://a.example.com"}, {"a/b"}, None)
TOKENS: tuple[Any, ...] = (
    *(NONE, {"0123456789abcdef"}, {"fedcba9876543210", "0123456789abcdeg"}, {"short"}, {5}),
)


class Event(Enum):
    """What happens beside the bytes that the peer sends."""

    NOTHING = 0
    BLOCK = 1  # the peer stops reading
    READ = 2  # the peer reads half of what it was sent
    UNBLOCK = 3  # the peer reads everything
    LOSE = 4  # the connection is lost
    STOP = 5  # the service begins to stop
    PUBLISH = 6  # another client publishes a message
    BREAK = 7  # the store of the topics stops answering


class Step(NamedTuple):
    """An event, then bytes from the peer, then a pause."""

    event: Event
    content: bytes
    delay: float = 0.1


@dataclass(frozen=True)
class Setup:
    """The service and the connection.

    Attributes:
        access: The clients that may use the service.
        is_unix: Whether the connection is one of a Unix socket.
        is_full: Whether the service has as many connections as it may have.
        access_log: Whether requests are logged.
    """

    access: Access
    is_unix: bool = False
    is_full: bool = False
    access_log: bool = False


def connection(data: bytes) -> None:
    """Send any bytes, in any pieces, on a connection that may be slow, blocked or lost."""
    draw = Draw(data)
    setup = Setup(Access(), *(draw.number(0, 7) == 1 for _ in range(3)))
    _serve(setup, _script(draw))


def request(data: bytes) -> None:
    """Send complete requests with parameters, headers and bodies of any kind."""
    draw = Draw(data)
    setup = Setup(_access(draw))
    _serve(setup, [Step(Event.NOTHING, _request(draw)) for _ in range(draw.number(1, 3))])


def frames(data: bytes) -> None:
    """Send a websocket handshake, and then any bytes in any pieces."""
    draw = Draw(data)
    setup = Setup(Access(subscribe_tokens=frozenset(draw.choice(TOKENS[:2]))))
    handshake = HANDSHAKE_FOR.format(draw.choice(TARGETS)).encode()
    _serve(setup, [Step(Event.NOTHING, handshake), *_script(draw)])


def _access(draw: Draw) -> Access:
    """Return drawn rules, or those for everyone if the drawn ones are refused."""
    hosts, origins = draw.choice(HOSTS), draw.choice(ORIGINS)
    publish, subscribe = draw.choice(TOKENS), draw.choice(TOKENS)
    try:
        return Access(
            hosts=hosts, origins=origins, publish_tokens=publish, subscribe_tokens=subscribe
        )
    except (BadInputError, TypeError) as error:
        check_reason(error, "must be")
        return Access()


def _script(draw: Draw) -> list[Step]:
    drawn = [
        (draw.choice(tuple(Event)), draw.number(0, 200), draw.choice(DELAYS))
        for _ in range(draw.number(0, 5))
    ]
    content = draw.rest()
    steps: list[Step] = []
    for event, size, delay in drawn:
        steps.append(Step(event, content[:size], delay))
        content = content[size:]
    return [*steps, Step(Event.NOTHING, content)]


def _request(draw: Draw) -> bytes:
    method, path = draw.choice(METHODS), draw.choice(PATHS)
    if path.endswith("/") and draw.number(0, 1):
        path += _line(draw.text(20))
    query = [f"{draw.choice(PARAMETERS)}={_line(draw.text(12))}" for _ in range(draw.number(0, 3))]
    lines = [f"{method} {path}{'?' if query else ''}{'&'.join(query)} HTTP/1.1"]
    for _ in range(draw.number(0, 4)):
        header = draw.choice(HEADERS)
        lines.append(header + _line(draw.text(20)) if header.endswith(" ") else header)
    body = draw.take(draw.number(0, 40)) * draw.choice((1, 3, 10))
    if not any(line.startswith("Host") for line in lines):
        lines.append("Host: localhost")
    if any(line.startswith("Transfer") for line in lines):
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    elif not any(line.startswith("Content-Length") for line in lines):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _line(text: str) -> str:
    return "".join(sign for sign in text if sign not in "\r\n\0 ")


class Wire(asyncio.Transport):
    """A transport whose peer accepts everything, or nothing while it is blocked."""

    def __init__(self, *, is_unix: bool = False) -> None:
        place = ("", "/run/topics.sock") if is_unix else (("127.0.0.1", 1), ("127.0.0.1", 2))
        super().__init__({"peername": place[0], "sockname": place[1]})
        self.sent = bytearray()
        self.unsent = 0
        self.blocked = False
        self.closing = False
        self.lost = False
        self.protocol: Any = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Store *data*."""
        if self.closing:
            return
        self.sent += data
        if self.blocked:
            is_first = not self.unsent
            self.unsent += len(data)
            if is_first:
                self.protocol.pause_writing()

    def read(self, share: int) -> None:
        """Read all but one *share* of what is in the buffer; nothing for no share."""
        was_full, self.unsent = self.unsent > 0, self.unsent // share if share else 0
        if was_full and not self.unsent and not self.lost:
            self.protocol.resume_writing()
            if self.closing:
                self._end()

    def close(self) -> None:
        """Close as soon as the buffer is empty."""
        if not self.closing:
            self.closing = True
            if not self.unsent:
                self._end()

    def abort(self) -> None:
        """Close at once; the protocol is called one turn later."""
        self.closing = True
        self._end()

    def _end(self) -> None:
        if not self.lost:
            self.lost = True
            asyncio.get_running_loop().call_soon(self._lose)

    def _lose(self) -> None:
        self.protocol.connection_lost(None)

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
        """Return how much the peer has not read."""
        return self.unsent

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


def _serve(setup: Setup, script: list[Step]) -> None:
    """Play the script on one connection, and check what the service does."""
    errors = Errors()
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(errors)
    try:
        with (
            patch.object(_parameters, "_READ_ON", 50),
            asyncio.Runner(loop_factory=lambda: VirtualClockEventLoop(patience=0)) as runner,
        ):
            sent = runner.run(_converse(setup, script, errors))
    finally:
        logger.removeHandler(errors)
    assert errors.texts == [], errors.texts
    assert b"HTTP/1.1 500" not in sent, sent
    assert not sent or sent.startswith(b"HTTP/1.1 "), sent


async def _converse(setup: Setup, script: list[Step], errors: Errors) -> bytes:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.texts.append(str(context)))
    app = TopicApp(LIMITS, access=setup.access, access_log=setup.access_log)
    config = _config(app, None)
    config.load()
    state = ServerState()
    async with app._app.router.lifespan_context(app._app) as shared:

        def connect() -> Wire:
            wire = Wire(is_unix=setup.is_unix)
            wire.protocol = config.http_protocol_class(config, state, dict(shared or {}), loop)  # type: ignore[call-arg]
            wire.protocol.connection_made(wire)
            return wire

        others = [connect() for _ in range(LIMITS.connections * setup.is_full)]
        wire = connect()
        for step in script:
            await _happen(step.event, app, wire)
            if step.content and not wire.closing:
                wire.protocol.data_received(step.content)
            if step.delay:
                await asyncio.sleep(step.delay)
        await asyncio.sleep(30)
        assert wire.lost or not wire.unsent, "a peer that reads nothing must lose its connection"
        for each in (wire, *others):
            each.abort()
        await asyncio.sleep(30)
        waiting = len(app._service.purgatory)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        named = [task.get_name() for task in left if task in state.tasks]
        assert (waiting, named, len(state.connections)) == (0, [], 0)
    return bytes(wire.sent)


async def _happen(event: Event, app: TopicApp, wire: Wire) -> None:
    store = app._service.store
    if event is Event.BLOCK:
        wire.blocked = True
    elif event in {Event.READ, Event.UNBLOCK}:
        wire.blocked = event is Event.READ
        wire.read(2 if event is Event.READ else 0)
    elif event is Event.LOSE:
        wire.abort()
    elif event is Event.STOP:
        await app.stop()
        if isinstance(wire.protocol, TopicProtocol):
            wire.protocol.refuse_partial_request()
    elif event is Event.PUBLISH:
        with suppress(StoreUnavailableError, Refusal, PurgatoryClosedError):
            await store.publish("news", b'"message"')
    elif event is Event.BREAK:
        store.news = AsyncMock(side_effect=StoreUnavailableError)  # type: ignore[method-assign]
