"""Ways for a task to close a stream that is silent for too long. Rank 5."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiowheel
from aiowheel.bench.workloads.hall import BACKLOG, Doors, Hall
from aiowheel.integrations.connections import idle_guard

_CHUNK = 4_096

Read = Callable[[asyncio.StreamReader, float], Awaitable[bytes]]
Visit = Callable[[Hall, float, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_for_ever(reader: asyncio.StreamReader, _: float) -> bytes:
    """The empty harness of those below."""
    return await reader.read(_CHUNK)


async def read_in_timeout(reader: asyncio.StreamReader, limit: float) -> bytes:
    """In asyncio's own timeout block."""
    async with asyncio.timeout(limit):
        return await reader.read(_CHUNK)


async def wait_for_read(reader: asyncio.StreamReader, limit: float) -> bytes:
    """As before there were timeout blocks."""
    return await asyncio.wait_for(reader.read(_CHUNK), limit)


async def read_in_our_timeout(reader: asyncio.StreamReader, limit: float) -> bytes:
    """In our timeout block."""
    async with aiowheel.timeout(limit):
        return await reader.read(_CHUNK)


def reading(read: Read) -> Visit:
    """Messages come by *read*, which raises TimeoutError."""

    async def visit(
        hall: Hall, limit: float, reader: asyncio.StreamReader, _: asyncio.StreamWriter
    ) -> None:
        try:
            while chunk := await read(reader, limit):
                hall.received += len(chunk)
        except TimeoutError:
            hall.silenced += 1

    return visit


async def guarded(
    hall: Hall, limit: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """What a user of ours would write."""
    async with idle_guard(writer, limit) as guard:
        while chunk := await reader.read(_CHUNK):
            hall.received += len(chunk)
    hall.silenced += guard.exceeded is not None


def doors_of(visit: Visit) -> Doors:
    """A server that has a task for each connection."""

    @asynccontextmanager
    async def doors(hall: Hall, limit: float) -> AsyncGenerator[int, None]:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            hall.open += 1
            try:
                await visit(hall, limit, reader, writer)
            finally:
                hall.open -= 1
                writer.transport.abort()

        server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=BACKLOG)
        yield server.sockets[0].getsockname()[1]
        server.close()

    return doors
