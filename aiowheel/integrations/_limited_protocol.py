"""Limits on an asyncio protocol. Rank 4."""

from __future__ import annotations

import math
from asyncio import BaseTransport, BufferedProtocol, Protocol, Transport
from typing import cast

from aiowheel.integrations._connection_watch import ConnectionWatch, Limit
from aiowheel.timer import Timer


class LimitedProtocol(Protocol):
    """Closes a connection that exceeds a limit; a base class, or a mixin before another protocol.

    `class Limited(LimitedProtocol, TheirProtocol): idle_timeout = 30`. A subclass that overrides
    `connection_made`, `data_received` or `connection_lost` calls `super()`'s.

    Attributes:
        idle_timeout: Seconds or timedelta of silence; default: no limit.
        first_byte_timeout: The same before the first byte; default: as *idle_timeout*.
        total_timeout: The same for the whole connection; default: no limit.
        timer: Default: the running loop's shared timer.
        transport: Of the connection, once it is made.

    Raises:
        TypeError: For a subclass that is a `BufferedProtocol`, too: that one receives no chunks.
    """

    idle_timeout: object = math.inf
    first_byte_timeout: object = None
    total_timeout: object = math.inf
    timer: Timer | None = None
    transport: Transport
    _watch: ConnectionWatch | None = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if issubclass(cls, BufferedProtocol):
            raise TypeError(f"only a Protocol receives chunks, not the BufferedProtocol {cls!r}")

    def connection_made(self, transport: BaseTransport) -> None:
        """Begin to watch."""
        self.transport = cast(Transport, transport)
        try:
            self._watch = ConnectionWatch(
                self.limit_exceeded,
                idle=self.idle_timeout,
                first_byte=self.first_byte_timeout,
                total=self.total_timeout,
                timer=self.timer,
            )
        except BaseException:  # a closed timer, say: without limits it would stay for ever
            self.transport.abort()
            raise
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Note that the peer is not silent."""
        watch = self._watch
        if watch is not None:
            watch.touch()
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Watch no more."""
        if self._watch is not None:
            self._watch.close()
        super().connection_lost(exc)

    def touch(self) -> None:
        """Count something else than received data, such as data sent."""
        if self._watch is not None:
            self._watch.touch()

    def limit_exceeded(self, limit: Limit) -> None:  # noqa: ARG002 - for who overrides it
        """Abort the connection; override it to say goodbye first."""
        self.transport.abort()
