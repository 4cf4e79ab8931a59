"""Reminders that survive a restart, on a store in memory and a virtual clock.

With `SQLiteStore("app.db")` in the place of the store, the same code survives a crash.

Prints:
    day 1: water the plants
    the program ends, and starts again on day 5
    day 5: water the plants
    day 7: pay the rent
    day 8: water the plants
"""

import asyncio
from datetime import timedelta

from aiowheel.durable import DurableTimers, Fire, MemoryStore
from aiowheel.testing import VirtualClockEventLoop

DAY = 86_400


def make_timers(store: MemoryStore) -> DurableTimers:
    """Return timers with their handlers, as each start of the program creates them."""
    timers = DurableTimers(store)

    @timers.handler("remind")
    async def remind(fire: Fire) -> None:
        day = int(asyncio.get_running_loop().time() / DAY)
        print(f"day {day}: {fire.payload.decode()}")

    return timers


async def main() -> None:
    """Run the program twice."""
    store = MemoryStore()
    async with make_timers(store) as timers:
        await timers.schedule("rent", "remind", due=timedelta(days=7), payload=b"pay the rent")
        await timers.every(
            "plants",
            "remind",
            3.5 * DAY,
            first=timedelta(days=1),
            payload=b"water the plants",
            missed="latest",
        )
        await asyncio.sleep(1.5 * DAY)
    print("the program ends, and starts again on day 5")
    await asyncio.sleep(3.6 * DAY)
    async with make_timers(store):
        await asyncio.sleep(3 * DAY)


with asyncio.Runner(loop_factory=VirtualClockEventLoop) as runner:
    runner.run(main())
