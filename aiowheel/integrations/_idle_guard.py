"""Limits on an asyncio stream. Rank 4."""

from __future__ import annotations

import math
from asyncio import StreamWriter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from aiowheel.integrations._connection_watch import ConnectionWatch
from aiowheel.integrations._touching import touching
from aiowheel.timer import Timer


@asynccontextmanager
async def idle_guard(
    writer: StreamWriter,
    timeout: object,  # noqa: ASYNC109 - of silence; the block is not bounded
    *,
    first_byte: object = None,
    total: object = math.inf,
    timer: Timer | None = None,
) -> AsyncGenerator[ConnectionWatch]:
    """Close the connection of *writer* when it is silent for more than *timeout*.

    `async with idle_guard(writer, 30) as guard:` around the work of a connection. Every chunk
    received counts. Then the connection is aborted, for a peer that is gone would not read what is
    still to be flushed: `read` returns what is left and then nothing, and `guard.exceeded` tells
    the limit. `guard.touch()` lets what is sent count as well; so must who does not read for longer
    than *timeout*, for behind a full buffer nothing is received.

    Args:
        writer: Of the connection; enter after `start_tls`.
        timeout: Seconds or timedelta.
        first_byte: The same for the silence before the first byte; default: as *timeout*.
        total: The same for the block as a whole.
        timer: Default: the running loop's shared timer.

    Raises:
        ValueError: A limit is not above 0.
    """
    transport = writer.transport
    watch = ConnectionWatch(
        lambda _: transport.abort(), idle=timeout, first_byte=first_byte, total=total, timer=timer
    )
    try:
        with touching(transport, watch.touch):
            yield watch
    finally:
        watch.close()
        if watch.exceeded is not None:
            with suppress(OSError):  # it was lost before
                await writer.wait_closed()
