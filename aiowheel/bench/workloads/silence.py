"""Ways to close a connection that has been silent for too long. Rank 5.

Each is what one would write: as an asyncio `Protocol`, or as a task per connection on streams.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import cast

import aiowheel

_CHUNK = 4_096
_BACKLOG = 4_096


@dataclass(slots=True)
class Hall:
    """Where the connections are.

    Attributes:
        open: Connections.
        received: Messages, a byte each.
        silenced: Connections closed for their silence.
    """

    open: int = 0
    received: int = 0
    silenced: int = 0


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
        self.loop = asyncio.get_running_loop()
        self.timer = self.loop.call_later(self.timeout, self.silent)

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
        self.loop = asyncio.get_running_loop()
        self.heard = self.loop.time()
        self.timer = self.loop.call_later(self.timeout, self.look)

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
        self.timer = aiowheel.call_later(self.timeout, self.silent)

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


def _protocols(kind: type[Connection]) -> "Doors":
    @asynccontextmanager
    async def doors(hall: Hall, limit: float) -> AsyncGenerator[int, None]:
        factory: Callable[[], Connection] = partial(kind, hall, limit)
        if kind is Detected:
            detector = aiowheel.IdleDetector(limit, Connection.silent)
            factory = partial(Detected, hall, limit, detector)
        server = await asyncio.get_running_loop().create_server(
            factory, "127.0.0.1", 0, backlog=_BACKLOG
        )
        yield server.sockets[0].getsockname()[1]
        server.close()

    return doors


Read = Callable[[asyncio.StreamReader, float], Awaitable[bytes]]


async def _read_for_ever(reader: asyncio.StreamReader, _: float) -> bytes:
    return await reader.read(_CHUNK)


async def _read_in_timeout(reader: asyncio.StreamReader, limit: float) -> bytes:
    async with asyncio.timeout(limit):
        return await reader.read(_CHUNK)


async def _wait_for_read(reader: asyncio.StreamReader, limit: float) -> bytes:
    return await asyncio.wait_for(reader.read(_CHUNK), limit)


async def _read_in_our_timeout(reader: asyncio.StreamReader, limit: float) -> bytes:
    async with aiowheel.timeout(limit):
        return await reader.read(_CHUNK)


def _tasks(read: Read) -> "Doors":
    @asynccontextmanager
    async def doors(hall: Hall, limit: float) -> AsyncGenerator[int, None]:
        async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            hall.open += 1
            try:
                while chunk := await read(reader, limit):
                    hall.received += len(chunk)
            except TimeoutError:
                hall.silenced += 1
            finally:
                hall.open -= 1
                writer.transport.abort()

        server = await asyncio.start_server(visit, "127.0.0.1", 0, backlog=_BACKLOG)
        yield server.sockets[0].getsockname()[1]
        server.close()

    return doors


Doors = Callable[[Hall, float], AbstractAsyncContextManager[int]]

DESIGNS: dict[str, Doors] = {
    "protocol": _protocols(Connection),
    "cancel and call_later": _protocols(Rearmed),
    "note and look": _protocols(Noted),
    "handle.touch": _protocols(Touched),
    "IdleDetector": _protocols(Detected),
    "task": _tasks(_read_for_ever),
    "task, asyncio.timeout": _tasks(_read_in_timeout),
    "task, asyncio.wait_for": _tasks(_wait_for_read),
    "task, aiowheel.timeout": _tasks(_read_in_our_timeout),
}
