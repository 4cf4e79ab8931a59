"""Protocol designs for closing a connection that is silent for too long."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import cast

import aiowheel
from aiowheel.integrations.connections import Limit, LimitedProtocol
from benchmarks.workloads.server_counts import BACKLOG, OpenServer, ServerCounts


class Connection(asyncio.Protocol):
    """A connection without a limit of silence: the empty harness of the others."""

    def __init__(self, counts: ServerCounts, timeout: float) -> None:
        self.counts = counts
        self.timeout = timeout
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the open connection."""
        self.transport = cast(asyncio.Transport, transport)
        self.counts.open += 1

    def data_received(self, data: bytes) -> None:
        """Count the messages."""
        self.counts.received += len(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """Count the closed connection."""
        self.counts.open -= 1

    def silent(self) -> None:
        """Close the connection because of silence."""
        self.counts.silenced += 1
        self.transport.abort()


class Rearmed(Connection):
    """A loop timer that every message cancels and arms again."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Arm the timer."""
        super().connection_made(transport)
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.timer: asyncio.TimerHandle = self.loop.call_later(self.timeout, self.silent)

    def data_received(self, data: bytes) -> None:
        """Cancel the timer and arm a new one."""
        self.counts.received += len(data)
        self.timer.cancel()
        self.timer = self.loop.call_later(self.timeout, self.silent)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer."""
        super().connection_lost(exc)
        self.timer.cancel()


class Noted(Connection):
    """A loop timer that checks, when it fires, the time of the last message."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Arm the timer."""
        super().connection_made(transport)
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.heard: float = self.loop.time()
        self.timer: asyncio.TimerHandle = self.loop.call_later(self.timeout, self.look)

    def data_received(self, data: bytes) -> None:
        """Record the time."""
        self.counts.received += len(data)
        self.heard = self.loop.time()

    def look(self) -> None:
        """Close the connection, or check again at the earliest possible end of the limit."""
        last_moment = self.heard + self.timeout
        if self.loop.time() >= last_moment:
            self.silent()
        else:
            self.timer = self.loop.call_at(last_moment, self.look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer."""
        super().connection_lost(exc)
        self.timer.cancel()


class Touched(Connection):
    """A timer of an `aiowheel.Timer` that every message touches."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Arm the timer."""
        super().connection_made(transport)
        self.timer: aiowheel.TimerHandle = aiowheel.call_later(self.timeout, self.silent)

    def data_received(self, data: bytes) -> None:
        """Touch the timer."""
        self.counts.received += len(data)
        self.timer.touch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer."""
        super().connection_lost(exc)
        self.timer.cancel()


class Detected(Connection):
    """A key of an `aiowheel.IdleDetector`."""

    def __init__(
        self, counts: ServerCounts, timeout: float, detector: aiowheel.IdleDetector[Connection]
    ) -> None:
        super().__init__(counts, timeout)
        self.detector = detector

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Watch the connection."""
        super().connection_made(transport)
        self.detector.touch(self)

    def data_received(self, data: bytes) -> None:
        """Touch the connection."""
        self.counts.received += len(data)
        self.detector.touch(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self.detector.discard(self)


class Limited(LimitedProtocol, Connection):
    """A `LimitedProtocol` with a limit of silence."""

    def __init__(self, counts: ServerCounts, timeout: float) -> None:
        super().__init__(counts, timeout)
        self.idle_timeout: float | timedelta | None = timeout

    def limit_exceeded(self, limit: Limit) -> None:  # noqa: ARG002 - there is only one limit
        """Close the connection."""
        self.silent()


def server_of(kind: type[Connection]) -> OpenServer:
    """Return a server factory for the given kind of connection."""

    @asynccontextmanager
    async def open_server(counts: ServerCounts, limit: float) -> AsyncGenerator[int, None]:
        factory: Callable[[], Connection] = partial(kind, counts, limit)
        if kind is Detected:
            detector = aiowheel.IdleDetector(limit, Connection.silent)
            factory = partial(Detected, counts, limit, detector)
        server = await asyncio.get_running_loop().create_server(
            factory, "127.0.0.1", 0, backlog=BACKLOG
        )
        yield server.sockets[0].getsockname()[1]
        server.close()

    return open_server
