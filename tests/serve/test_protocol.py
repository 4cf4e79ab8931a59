"""Connections of the service in virtual time: slow readers, and websockets that end."""

import asyncio
import logging
from typing import Any

import pytest
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.server import ServerState

from aiowheel.serve import Limits, TopicApp
from aiowheel.serve._server import _config
from tests.fuzz.service import HANDSHAKE, Wire

from .conftest import started

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]

LIMITS = Limits(heartbeat=5.0, receive_timeout=10.0)


class SlowWire(Wire):
    """A transport with bytes that its client has not read."""

    def __init__(self) -> None:
        super().__init__()
        self.unsent = 1_000_000


def connected(app: TopicApp, wire: Wire) -> Any:
    """Open a connection on *wire*; return its protocol."""
    loop = asyncio.get_running_loop()
    config = _config(app, LIMITS, None)
    config.load()
    state = {"timer": app._service.purgatory._timer}
    wire.protocol = config.http_protocol_class(config, ServerState(), state, loop)  # type: ignore[call-arg]
    wire.protocol.connection_made(wire)
    return wire.protocol


async def subscribed(app: TopicApp, wire: Wire) -> Any:
    """Open a subscription on *wire*; return its protocol."""
    connected(app, wire).data_received(HANDSHAKE)
    await asyncio.sleep(0.1)
    assert b" 101 " in wire.sent
    return wire.protocol


async def answered_slowly(app: TopicApp, wire: Wire) -> Any:
    """Request a page on *wire*, whose client does not read the answer; return its protocol."""
    protocol = connected(app, wire)
    protocol.data_received(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await asyncio.sleep(0.1)
    protocol.pause_writing()
    return protocol


async def test_an_answer_may_take_longer_than_the_limit_while_it_progresses() -> None:
    """One byte per limit keeps the connection; a limit without progress ends it."""
    app, wire = TopicApp(LIMITS), SlowWire()
    async with started(app):
        await answered_slowly(app, wire)

        for _ in range(10):
            await asyncio.sleep(9.9)
            wire.unsent -= 1
        assert not wire.lost

        await asyncio.sleep(20)
        assert wire.lost


async def test_a_sent_answer_ends_the_write_timeout() -> None:
    """The timeout of the next answer starts with that answer."""
    app, wire = TopicApp(LIMITS), SlowWire()
    async with started(app):
        protocol = connected(app, wire)
        protocol.data_received(b"GET /topics/news?timeout=60 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        protocol.pause_writing()
        await asyncio.sleep(9)
        protocol.resume_writing()

        await asyncio.sleep(40)
        assert not wire.lost
        wire.abort()
        await asyncio.sleep(1)


async def test_a_websocket_after_an_unread_answer_stays_open() -> None:
    """The client reads the answer only after its request for the websocket."""
    app, wire = TopicApp(LIMITS), SlowWire()
    async with started(app):
        protocol = await answered_slowly(app, wire)
        protocol.data_received(HANDSHAKE)
        await asyncio.sleep(0.1)
        assert b" 101 " in wire.sent
        wire.read(0)
        wire.protocol.stop_keepalive()

        await asyncio.sleep(60)
        assert not wire.lost

        wire.abort()
        await asyncio.sleep(1)


@pytest.mark.parametrize("last", [b"\x88\x82\0\0\0\0\3\xe8", b"\xf1\x80abcd"])
async def test_a_closed_websocket_whose_client_reads_nothing_is_aborted(last: bytes) -> None:
    """The client sends a close frame, or a frame with reserved bits, and reads nothing further."""
    app, wire = TopicApp(LIMITS), SlowWire()
    async with started(app):
        protocol = await subscribed(app, wire)

        protocol.data_received(last)
        await asyncio.sleep(LIMITS.heartbeat + 1)

        assert wire.lost


@pytest.mark.parametrize(("wanted", "given"), [(b"news", b"!"), (b"Version: 13", b"Version: 1")])
async def test_a_refused_websocket_whose_client_reads_nothing_is_aborted(
    wanted: bytes, given: bytes
) -> None:
    """The service, or the protocol itself, refuses the handshake."""
    app, wire = TopicApp(LIMITS), SlowWire()
    async with started(app):
        connected(app, wire).data_received(HANDSHAKE.replace(wanted, given))
        await asyncio.sleep(LIMITS.heartbeat + 1)

        assert b" 101 " not in wire.sent
        assert wire.lost


async def test_a_message_after_a_missed_ping_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A send between the close and the disconnect raises no error in the log."""
    app, wire = TopicApp(LIMITS), Wire()
    async with started(app):
        protocol = await subscribed(app, wire)

        protocol.keepalive_timeout()
        with pytest.raises(ClientDisconnected):
            await protocol.send({"type": "websocket.send", "text": "late"})
        await asyncio.sleep(1)

        assert len(app._service.purgatory) == 0
    assert caplog.records == []


async def test_a_websocket_closed_while_the_service_stops_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The stop and a frame with reserved bits fall into one iteration of the loop."""
    app, wire = TopicApp(LIMITS), Wire()
    async with started(app):
        protocol = await subscribed(app, wire)

        await app.stop()
        protocol.data_received(b"\xf1\x80abcd")
        await asyncio.sleep(1)

    assert wire.lost
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("field", [b"Content-Length: 5", b"Transfer-Encoding: chunked"])
async def test_a_handshake_with_a_body_is_refused(field: bytes) -> None:
    """Websockets would wait for the body without a timeout."""
    async with started(TopicApp(LIMITS)) as app:
        wire = Wire()
        connected(app, wire).data_received(HANDSHAKE[:-2] + field + b"\r\n\r\n")

        assert wire.sent.startswith(b"HTTP/1.1 400 ")
        assert b"the handshake of a websocket must have no body" in wire.sent
        assert wire.is_closing()


@pytest.mark.parametrize(
    "fields", [b"Cookie: a=%b" % (b"x" * 9_000), b"\r\n".join(b"X-%d: 1" % n for n in range(150))]
)
async def test_a_handshake_that_websockets_refuses_is_answered(fields: bytes) -> None:
    """The service accepts such a head of a request; without an answer the client would wait."""
    async with started(TopicApp(LIMITS)) as app:
        wire = Wire()
        protocol = connected(app, wire)
        protocol.data_received(HANDSHAKE[:-2] + fields + b"\r\n\r\n")

        assert wire.sent.startswith(b"HTTP/1.1 400 ")
        assert b"the handshake of a websocket is refused: " in wire.sent
        assert wire.is_closing()
        assert len(protocol.connections) == 1
        wire.protocol.shutdown()


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(b"\x81\x81\0\0\0\0\xff", id="no UTF-8"),
        pytest.param(b"\xf1\x80abcd", id="reserved bits"),
        pytest.param(b"\x88\x82\0\0\0\0\3\xe8", id="close"),
        pytest.param(b"\x88\x81\0\0\0\0\3", id="malformed close"),
        pytest.param(b"\x89\x80abcd\x8a\x80abcd", id="ping and pong"),
        pytest.param(b"\x81\x81\0\0\0\0x", id="text"),
    ],
)
@pytest.mark.parametrize("host", [b"localhost", b"foreign.example"])
async def test_frames_that_arrive_before_the_handshake_is_answered_cause_no_traceback(
    frames: bytes, host: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A client must wait for the answer; one that does not may lose its connection."""
    app, wire = TopicApp(LIMITS), Wire()
    handshake = HANDSHAKE.replace(b"localhost", host)
    with caplog.at_level(logging.ERROR):
        async with started(app):
            connected(app, wire).data_received(handshake)
            wire.protocol.data_received(frames)
            await asyncio.sleep(1)
            wire.close()
            await asyncio.sleep(1)

            assert len(app._service.purgatory) == 0
    assert wire.lost
    assert caplog.records == []


async def test_text_that_is_no_utf_8_is_refused_without_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The close code is 1007; a traceback per message would let a client fill the log."""
    app, wire = TopicApp(LIMITS), Wire()
    with caplog.at_level(logging.ERROR):
        async with started(app):
            protocol = await subscribed(app, wire)

            protocol.data_received(b"\x01\x81\0\0\0\0\xff\x80\x81\0\0\0\0\xff")  # in two frames
            await asyncio.sleep(1)

            assert len(app._service.purgatory) == 0
    assert b"\x88\x02\x03\xef" in wire.sent
    assert wire.closing
    assert caplog.records == []
