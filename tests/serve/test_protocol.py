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


def connected(app: TopicApp, wire: Wire, server: ServerState | None = None) -> Any:
    """Open a connection on *wire*, of a server of its own by default; return its protocol."""
    loop = asyncio.get_running_loop()
    config = _config(app, None)
    config.load()
    state = {"timer": app._service.purgatory._timer}
    server = ServerState() if server is None else server
    wire.protocol = config.http_protocol_class(config, server, state, loop)  # type: ignore[call-arg]
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


FULL = Limits(connections=2, receive_timeout=10.0)


def crowd(app: TopicApp, server: ServerState, count: int) -> list[Wire]:
    """Open *count* connections of a server with the limits `FULL`."""
    wires = [Wire() for _ in range(count)]
    for each in wires:
        connected(app, each, server)
    return wires


@pytest.mark.parametrize("path", [b"/live", b"/health", b"/metrics", b"http://localhost/live?a"])
async def test_a_probe_is_answered_above_the_limit_of_connections(path: bytes) -> None:
    """A supervisor would restart a healthy service; the connection ends with the answer."""
    app, server = TopicApp(FULL), ServerState()
    async with started(app):
        *_, wire = crowd(app, server, FULL.connections + 1)

        probe = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path
        wire.protocol.data_received(probe[:20])
        wire.protocol.data_received(probe[20:] + probe)
        await asyncio.sleep(1)

        assert wire.sent.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nconnection: close\r\n" in wire.sent
        assert wire.sent.count(b"HTTP/1.1 ") == 1
        assert wire.lost
        assert len(server.connections) == FULL.connections


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(b"GET /topics/a?timeout=0 HTTP/1.1\r\nHost: localhost\r\n\r\n", id="poll"),
        pytest.param(HANDSHAKE, id="websocket"),
        pytest.param(
            b"POST /topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx",
            id="half a publish",
        ),
    ],
)
async def test_other_requests_are_refused_above_the_limit_of_connections(request_: bytes) -> None:
    """The client gets 503 and `Retry-After`."""
    app, server = TopicApp(FULL), ServerState()
    async with started(app):
        *_, wire = crowd(app, server, FULL.connections + 1)

        wire.protocol.data_received(request_)
        await asyncio.sleep(1)

        assert wire.sent.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: " in wire.sent
        assert b"the limit of 2 connections is reached" in wire.sent
        assert wire.lost
        assert len(server.connections) == FULL.connections
        assert len(app._service.purgatory) == 0


async def test_a_flood_uses_few_connections_above_the_limit() -> None:
    """Further ones are refused before they send; silent ones end with the receive timeout."""
    app, server = TopicApp(FULL), ServerState()
    async with started(app):
        wires = crowd(app, server, FULL.connections + 40)
        await asyncio.sleep(1)

        refused = [each for each in wires if each.lost]
        assert len(refused) == 8
        assert all(b"too_many_connections" in each.sent for each in refused)

        wires[0].protocol.data_received(
            b"GET /topics/a?timeout=60 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        await asyncio.sleep(FULL.receive_timeout)
        assert len(server.connections) == 1
        wires[0].abort()
        await asyncio.sleep(1)
