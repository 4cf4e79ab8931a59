"""A TCP server that closes silent connections; every chunk ends a silence, not only a line.

Runs on virtual time, without waiting; `asyncio.run(main())` does the same in real time.

Prints:
    5 s: nobody, 0 lines: first byte limit
    30 s: silent, 1 lines: idle limit
    40 s: chatty, 4 lines: it left
    116 s: slow, 1 lines: it left
    timers left: 0
"""

import asyncio

import aiowheel
from aiowheel.integrations.connections import idle_guard
from aiowheel.testing import VirtualClockEventLoop


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Echo lines; the first line is the client's name."""
    lines = 0
    name = "nobody"
    async with idle_guard(writer, 30, first_byte=5, total=600) as guard:
        while (line := await reader.readline()) and guard.exceeded is None:
            name = line.decode().split()[0]
            lines += 1
            writer.write(line)
            await writer.drain()
        writer.close()
        await writer.wait_closed()  # inside, because a peer that never reads would delay it
    end = f"{guard.exceeded} limit" if guard.exceeded else "it left"
    print(f"{now():.0f} s: {name}, {lines} lines: {end}")


async def client(port: int, pieces: list[str], pause: float, *, leave: bool) -> None:
    """Send the pieces, then disconnect or fall silent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece.encode())
        await asyncio.sleep(pause)
    if not leave:
        await reader.read()
    writer.close()
    await writer.wait_closed()


def now() -> float:
    """Seconds on the loop's clock."""
    return asyncio.get_running_loop().time()


async def main() -> None:
    """Serve one client of each kind."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await asyncio.gather(
        client(port, [], 0, leave=False),
        client(port, ["silent\n"], 1, leave=False),
        client(port, ["slow ", "but ", "not ", "silent\n"], 29, leave=True),
        client(port, ["chatty\n"] * 4, 10, leave=True),
    )
    server.close()
    await asyncio.sleep(1)  # the last handler ends
    print("timers left:", len(aiowheel.current_timer()))


with asyncio.Runner(loop_factory=VirtualClockEventLoop) as runner:
    runner.run(main())
