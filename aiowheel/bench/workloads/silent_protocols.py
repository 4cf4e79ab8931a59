"""Ways for a protocol to close a connection that is silent for too long. Rank 5."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import cast

import aiowheel
from aiowheel.bench.workloads.hall import BACKLOG, Doors, Hall
from aiowheel.integrations.connections import Limit, LimitedProtocol


class Connection(asyncio.Protocol):
    """One that may be silent for ever: the empty harness of those below."""

    def __init__(self, hall: Hall, timeout: float) -> None:
        self.hall = hall
        self.timeout = timeout
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it in."""
        self.transport = cast(asyncio.Transport, transport)
        self.hall.open += 1

    def data_received(self, data: bytes) -> None:
        """Count the messages."""
        self.hall.received += len(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """Count it out."""
        self.hall.open -= 1

    def silent(self) -> None:
        """Close it."""
        self.hall.silenced += 1
        self.transport.abort()


class Rearmed(Connection):
    """A timer of the loop that every message cancels and arms anew."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Arm."""
        super().connection_made(transport)
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.timer: asyncio.TimerHandle = self.loop.call_later(self.timeout, self.silent)

    def data_received(self, data: bytes) -> None:
        """Cancel and arm."""
        self.hall.received += len(data)
        self.timer.cancel()
        self.timer = self.loop.call_later(self.timeout, self.silent)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel."""
        super().connection_lost(exc)
        self.timer.cancel()


class Noted(Connection):
    """A timer of the loop that looks, when it fires, when the last message came."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Arm."""
        super().connection_made(transport)
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.heard: float = self.loop.time()
        self.timer: asyncio.TimerHandle = self.loop.call_later(self.timeout, self.look)

    def data_received(self, data: bytes) -> None:
        """Note the time."""
        self.hall.received += len(data)
        self.heard = self.loop.time()

    def look(self) -> None:
        """Close, or look again when it could have been silent for long enough."""
        last_moment = self.heard + self.timeout
        if self.loop.time() >= last_moment:
            self.silent()
        else:
            self.timer = self.loop.call_at(last_moment, self.look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel."""
        super().connection_lost(exc)
        self.timer.cancel()


class Touched(Connection):
    """A timer of an `aiowheel.Timer` that every message touches."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Arm."""
        super().connection_made(transport)
        self.timer: aiowheel.TimerHandle = aiowheel.call_later(self.timeout, self.silent)

    def data_received(self, data: bytes) -> None:
        """Touch."""
        self.hall.received += len(data)
        self.timer.touch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel."""
        super().connection_lost(exc)
        self.timer.cancel()


class Detected(Connection):
    """A key of an `aiowheel.IdleDetector`."""

    def __init__(
        self, hall: Hall, timeout: float, detector: aiowheel.IdleDetector[Connection]
    ) -> None:
        super().__init__(hall, timeout)
        self.detector = detector

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Watch."""
        super().connection_made(transport)
        self.detector.touch(self)

    def data_received(self, data: bytes) -> None:
        """Touch."""
        self.hall.received += len(data)
        self.detector.touch(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget."""
        super().connection_lost(exc)
        self.detector.discard(self)


class Limited(LimitedProtocol, Connection):
    """What a user of ours would write."""

    def __init__(self, hall: Hall, timeout: float) -> None:
        super().__init__(hall, timeout)
        self.idle_timeout: float | timedelta | None = timeout

    def limit_exceeded(self, limit: Limit) -> None:  # noqa: ARG002 - there is but one
        """Close it."""
        self.silent()


def doors_of(kind: type[Connection]) -> Doors:
    """A server whose connections are of that kind."""

    @asynccontextmanager
    async def doors(hall: Hall, limit: float) -> AsyncGenerator[int, None]:
        factory: Callable[[], Connection] = partial(kind, hall, limit)
        if kind is Detected:
            detector = aiowheel.IdleDetector(limit, Connection.silent)
            factory = partial(Detected, hall, limit, detector)
        server = await asyncio.get_running_loop().create_server(
            factory, "127.0.0.1", 0, backlog=BACKLOG
        )
        yield server.sockets[0].getsockname()[1]
        server.close()

    return doors
