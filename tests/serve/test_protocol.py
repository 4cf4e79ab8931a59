"""What a websocket of the service does in the turn in which its connection is given up."""

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

LIMITS = Limits(heartbeat=5.0)


async def subscribed(app: TopicApp, wire: Wire) -> Any:
    """Open a subscription on *wire*; return its protocol."""
    loop = asyncio.get_running_loop()
    config = _config(app, LIMITS, None)
    config.load()
    state = {"timer": app._service.purgatory._timer}
    wire.protocol = config.http_protocol_class(config, ServerState(), state, loop)  # type: ignore[call-arg]
    wire.protocol.connection_made(wire)
    wire.protocol.data_received(HANDSHAKE)
    await asyncio.sleep(0.1)
    assert b" 101 " in wire.sent
    return wire.protocol


async def test_a_message_in_the_turn_of_the_end_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The ping was not answered, and something is published before the connection is gone."""
    app, wire = TopicApp(LIMITS), Wire()
    async with started(app):
        protocol = await subscribed(app, wire)

        protocol.keepalive_timeout()
        with pytest.raises(ClientDisconnected):
            await protocol.send({"type": "websocket.send", "text": "late"})
        await asyncio.sleep(1)

        assert len(app._service.purgatory) == 0
    assert caplog.records == []


async def test_text_that_is_no_utf_8_is_refused_without_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """1007; a client could otherwise fill the operator's log with tracebacks."""
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
