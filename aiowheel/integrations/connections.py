"""Limits and heartbeats for asyncio's protocols and streams. Rank 4; needs no extra."""

from aiowheel.integrations._connection_watch import ConnectionWatch as ConnectionWatch
from aiowheel.integrations._connection_watch import Limit as Limit
from aiowheel.integrations._heartbeat import Heartbeat as Heartbeat
from aiowheel.integrations._heartbeat import heartbeat as heartbeat
from aiowheel.integrations._idle_guard import idle_guard as idle_guard
from aiowheel.integrations._limited_protocol import LimitedProtocol as LimitedProtocol
from aiowheel.integrations._touching import touching as touching

__all__ = (
    "ConnectionWatch",
    "Heartbeat",
    "Limit",
    "LimitedProtocol",
    "heartbeat",
    "idle_guard",
    "touching",
)
