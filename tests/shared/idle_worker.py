"""A program that touches the keys on its standard input, and prints each that falls idle."""

import asyncio
import sys

from aiowheel.shared import PostgresCounters, RedisCounters, SharedIdle, SqliteCounters

STORES = {"sqlite": SqliteCounters, "postgres": PostgresCounters, "redis": RedisCounters}


def name(key: str) -> None:
    """Print an idle key."""
    sys.stdout.write(f"{key}\n")
    sys.stdout.flush()


async def main(store: str, address: str, seconds: str, lease: str) -> None:
    """Touch keys until the end of the input, then wait until the process is killed."""
    loop = asyncio.get_running_loop()
    async with SharedIdle(STORES[store](address), float(seconds), name, lease=float(lease)) as idle:
        name("ready")
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            idle.touch(line.rstrip("\n"))
        await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
