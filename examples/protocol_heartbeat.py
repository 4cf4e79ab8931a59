"""A protocol with a heartbeat and an idle limit: one pending timer for each connection.

Runs on virtual time, without waiting; `asyncio.run(main())` does the same in real time.

Prints:
    20 s: ping to silent
    20 s: ping to lively
    40 s: ping to silent
    45 s: ping to lively
    60 s: silent is closed: idle limit
    70 s: ping to lively
    timers pending: 1
"""

import asyncio

import aiowheel
from aiowheel.integrations.connections import Limit, LimitedProtocol
from aiowheel.testing import VirtualClockEventLoop


class Server(LimitedProtocol):
    """Pings a peer after every 20 s of silence, and closes it after 60 s."""

    heartbeat_interval = 20
    idle_timeout = 60
    names = iter(["silent", "lively"])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Name the peers in the order in which they connect."""
        super().connection_made(transport)
        self.name = next(self.names)

    def send_heartbeat(self) -> None:
        """Send the ping of this protocol."""
        print(f"{now():.0f} s: ping to {self.name}")
        self.transport.write(b"ping\n")

    def limit_exceeded(self, limit: Limit) -> None:
        """Report the limit, then abort the connection."""
        print(f"{now():.0f} s: {self.name} is closed: {limit} limit")
        super().limit_exceeded(limit)


async def lively(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every ping after 5 s."""
    while await reader.readline():
        await asyncio.sleep(5)
        writer.write(b"pong\n")


def now() -> float:
    """Seconds on the loop's clock."""
    return asyncio.get_running_loop().time()


async def main() -> None:
    """Serve a peer that never answers and a peer that does."""
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    silent_reader, silent = await asyncio.open_connection(*address)
    reader, writer = await asyncio.open_connection(*address)
    answering = asyncio.create_task(lively(reader, writer))

    while await silent_reader.readline():  # two pings, then the end
        pass
    await asyncio.sleep(12)
    print("timers pending:", len(aiowheel.current_timer()))

    answering.cancel()
    for each in (silent, writer):
        each.close()
    server.close()


with asyncio.Runner(loop_factory=VirtualClockEventLoop) as runner:
    runner.run(main())
