"""Task designs for closing a stream that is silent for too long."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiowheel
from aiowheel.integrations.connections import idle_guard
from benchmarks.workloads.server_counts import BACKLOG, OpenServer, ServerCounts

_CHUNK = 4_096

Read = Callable[[asyncio.StreamReader, float], Awaitable[bytes]]
Visit = Callable[[ServerCounts, float, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_without_limit(reader: asyncio.StreamReader, _: float) -> bytes:
    """Read without a limit: the empty harness of the others."""
    return await reader.read(_CHUNK)


async def read_in_timeout(reader: asyncio.StreamReader, limit: float) -> bytes:
    """Read in asyncio's own timeout block."""
    async with asyncio.timeout(limit):
        return await reader.read(_CHUNK)


async def wait_for_read(reader: asyncio.StreamReader, limit: float) -> bytes:
    """Read with `asyncio.wait_for`, as before timeout blocks existed."""
    return await asyncio.wait_for(reader.read(_CHUNK), limit)


async def read_in_our_timeout(reader: asyncio.StreamReader, limit: float) -> bytes:
    """Read in aiowheel's timeout block."""
    async with aiowheel.timeout(limit):
        return await reader.read(_CHUNK)


def reading(read: Read) -> Visit:
    """Return a handler that reads messages by *read*, which raises TimeoutError."""

    async def visit(
        counts: ServerCounts, limit: float, reader: asyncio.StreamReader, _: asyncio.StreamWriter
    ) -> None:
        try:
            while chunk := await read(reader, limit):
                counts.received += len(chunk)
        except TimeoutError:
            counts.silenced += 1

    return visit


async def guarded(
    counts: ServerCounts, limit: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Handle a connection with aiowheel's limited streams."""
    async with idle_guard(writer, limit) as guard:
        while chunk := await reader.read(_CHUNK):
            counts.received += len(chunk)
    counts.silenced += guard.exceeded is not None


def server_of(visit: Visit) -> OpenServer:
    """Return a server factory with one task per connection."""

    @asynccontextmanager
    async def open_server(counts: ServerCounts, limit: float) -> AsyncGenerator[int, None]:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            counts.open += 1
            try:
                await visit(counts, limit, reader, writer)
            finally:
                counts.open -= 1
                writer.transport.abort()

        server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=BACKLOG)
        yield server.sockets[0].getsockname()[1]
        server.close()

    return open_server
