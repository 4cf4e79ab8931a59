"""A program that waits for the keys on its standard input, and prints each that has completed."""

import asyncio
import sys

from aiowheel import Purgatory
from aiowheel.shared import PostgresCounters, RedisCounters, SharedCounters, SqliteCounters

STORES = {"sqlite": SqliteCounters, "postgres": PostgresCounters, "redis": RedisCounters}


async def main(store: str, address: str, count: str) -> None:
    """Wait for every key to reach 1."""
    keys = [sys.stdin.readline().rstrip("\n") for _ in range(int(count))]
    async with (
        Purgatory() as purgatory,
        SharedCounters(purgatory, STORES[store](address)) as shared,
    ):
        waits = [asyncio.create_task(wait(shared, key)) for key in keys]
        await asyncio.sleep(0)
        print("ready", flush=True)
        await asyncio.gather(*waits)


async def wait(shared: SharedCounters, key: str) -> None:
    """Print the key when its counter has reached 1."""
    assert await shared.wait_until({key: 1}, None)
    sys.stdout.write(f"{key}\n")
    sys.stdout.flush()


asyncio.run(main(*sys.argv[1:]))
