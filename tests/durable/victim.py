"""A process that schedules and fires durable timers until it is killed.

`python -m tests.durable.victim STORE LOG NUMBER`. Each line of the log is written before the next
step: `asked NAME`, `written NAME DUE`, `cancelling NAME`, `cancelled NAME`, `fired NAME ID TIME`.
Times are microseconds of the store's clock.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from datetime import timedelta

from aiowheel.durable import DurableTimers, Fire, SQLiteStore, Store, StoreError
from aiowheel.durable._instants import to_us

LEASE = 2.0


def store_at(where: str) -> Store:
    """Return the store of an address or a path."""
    if where.startswith("postgresql://"):
        from aiowheel.durable import PostgresStore

        return PostgresStore(where, partitions=8)
    return SQLiteStore(where, partitions=8)


async def main(where: str, log: str, number: str) -> None:
    """Work."""
    chance = random.Random(f"{number} {time.time_ns()}")
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(*words: object) -> None:
        os.write(descriptor, (" ".join(map(str, words)) + "\n").encode())

    timers = DurableTimers(store_at(where), window=5, lease=LEASE)

    @timers.handler("h")
    async def handle(fire: Fire) -> None:
        note("fired", fire.name, fire.id, to_us("now", timers.now()))
        await asyncio.sleep(chance.choice((0, 0.01)))

    async def client(place: int) -> None:
        for step in range(1_000_000):
            name = f"{number}.{os.getpid()}.{place}.{step}"
            due = timers.now() + timedelta(seconds=chance.choice((0, 0.2, 1, 3)))
            try:
                note("asked", name)
                await timers.schedule(name, "h", due=due)
                note("written", name, to_us("due", due))
                if chance.random() < 0.2:
                    note("cancelling", name)
                    if await timers.cancel(name):
                        note("cancelled", name)
            except StoreError as error:
                note("error", name, repr(error))
            await asyncio.sleep(chance.uniform(0, 0.1))

    async with timers:
        if number == "last":  # this process only fires the remaining timers
            summary = await timers.summary()
            while summary.pending:
                await asyncio.sleep(0.2)
                summary = await timers.summary()
            return
        note("ready", number)
        await asyncio.gather(*(client(place) for place in range(20)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
