"""A TCP server that closes connections which stay silent, at one touch for every chunk received.

Prints:
    chatty says 3 lines and leaves
    silent was closed by the server
    watched at the end: 0
"""

import asyncio

import aiowheel


class Server:
    """Echoes lines; a connection that is silent for longer than the timeout is closed."""

    def __init__(self, timeout: float) -> None:
        self.idle: aiowheel.IdleDetector[asyncio.StreamWriter] = aiowheel.IdleDetector(
            timeout, lambda writer: writer.close()
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one connection."""
        self.idle.touch(writer)
        while line := await reader.readline():
            self.idle.touch(writer)
            writer.write(line)
        self.idle.discard(writer)
        writer.close()


async def chatty(port: int) -> None:
    """Say something before the timeout, three times."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(3):
        writer.write(b"hello\n")
        await reader.readline()
    print("chatty says 3 lines and leaves")
    writer.close()
    await writer.wait_closed()


async def silent(port: int) -> None:
    """Say nothing and wait for the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await reader.read() == b""
    print("silent was closed by the server")
    writer.close()


async def main() -> None:
    """Serve one client of each kind."""
    server = Server(timeout=0.1)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    await chatty(port)
    await silent(port)
    listener.close()
    print("watched at the end:", len(server.idle))


asyncio.run(main())
