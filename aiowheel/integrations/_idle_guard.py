"""Limits for an asyncio stream. Rank 4."""

from __future__ import annotations

from asyncio import StreamWriter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from aiowheel._types import Delay
from aiowheel.integrations._connection_watch import ConnectionWatch
from aiowheel.integrations._limits import beyond_ns
from aiowheel.integrations._touching import touching
from aiowheel.timer import Timer


@asynccontextmanager
async def idle_guard(
    writer: StreamWriter,
    timeout: Delay | None,  # noqa: ASYNC109 - of silence; the block is not bounded
    *,
    first_byte: Delay | None = None,
    total: Delay | None = None,
    timer: Timer | None = None,
) -> AsyncGenerator[ConnectionWatch]:
    """Abort the connection of *writer* when it is silent for more than *timeout*.

    Put `async with idle_guard(writer, 30) as guard:` around the work of a connection. Every
    received chunk ends the silence. When a limit is exceeded, the connection is aborted without
    flushing, because a dead peer would never read the rest. `read` then returns the buffered data
    and after it `b""`, and `guard.exceeded` is the limit.

    Await `writer.drain()` inside the block, and `writer.wait_closed()` after `writer.close()`: only
    the guard ends these waits if the peer does not read.

    Call `guard.touch()` for sent data if a client may listen for long. Call it also while the
    handler does not read for longer than *timeout*: the transport stops receiving while the buffer
    is full.

    Args:
        writer: The connection's writer. Enter the block after `start_tls`.
        timeout: The longest silence, in seconds or as timedelta; None for no limit.
        first_byte: The longest silence before the first byte; default: as *timeout*.
        total: The longest time of the whole block; None for no limit.
        timer: Default: the running loop's shared timer.

    Raises:
        ValueError: A limit is not more than 0.
        TypeError: A limit is no number.
        TimerClosedError: The timer is not open.
    """
    beyond_ns("timeout", timeout)  # the watch calls it `idle`
    transport = writer.transport
    watch = ConnectionWatch(
        lambda _: transport.abort(), idle=timeout, first_byte=first_byte, total=total, timer=timer
    )
    if _has_unread_data(writer):  # the first byte came before the block, as on uvloop
        watch.touch()
    try:
        with touching(transport, watch.touch):
            yield watch
    finally:
        watch.close()
        if watch.exceeded is not None:
            with suppress(OSError):  # the connection was lost before
                await writer.wait_closed()


def _has_unread_data(writer: StreamWriter) -> bool:
    # asyncio offers only these private attributes. If one is missing, the first byte counts only
    # inside the block.
    return bool(getattr(getattr(writer, "_reader", None), "_buffer", b""))
