"""Websockets with a heartbeat: one timer for each connection, and no task.

Needs the extra `web`. The library's own keepalive, a sleeping task for each connection, is off.

Prints:
    deaf has not answered a ping
    lively has answered 3 and more
    still connected: ['lively']
"""

import asyncio
from collections import Counter

from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from aiowheel.integrations.connections import heartbeat, touching

pings = Counter[str]()
somebody_is_dead, somebody_lives = asyncio.Event(), asyncio.Event()


async def handle(connection: ServerConnection) -> None:
    """Keep a connection open while the peer sends data."""
    name = str(await connection.recv())

    async def ping() -> None:
        pings[name] += 1
        if pings[name] > 3:
            somebody_lives.set()
        await connection.ping()

    try:
        async with heartbeat(ping, interval=0.05, timeout=1) as beat:
            # Every chunk counts: pongs, and parts of messages.
            with touching(connection.transport, beat.seen):
                await connection.wait_closed()
    except TimeoutError:
        connection.transport.abort()  # a dead peer would not read a close frame
        if pings.pop(name) == 1:
            print(name, "has not answered a ping")
        somebody_is_dead.set()


async def main() -> None:
    """Connect one client that answers and one that does not."""
    async with serve(handle, "127.0.0.1", 0, ping_interval=None) as server:
        address = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with connect(address) as lively, connect(address) as deaf:
            try:
                await lively.send("lively")
                await deaf.send("deaf")
                deaf.transport.pause_reading()
                await somebody_is_dead.wait()
                await somebody_lives.wait()
                print("lively has answered 3 and more")
                print("still connected:", list(pings))
            finally:
                deaf.transport.abort()  # it would wait 10 s for a close frame


asyncio.run(main())
