"""Poll with a fixed period by `interval`, and limit each poll by `move_on_after`.

A poll that exceeds its budget keeps the last known value; it does not move the next poll.

Prints:
    poll 1: fresh 1
    poll 2: still 1
    poll 3: fresh 3
"""

import asyncio

import aiowheel


async def ask(number: int) -> int:
    """Answer every second poll too late, the others at once."""
    if number % 2 == 0:
        await asyncio.sleep(60)
    return number


async def main() -> None:
    """Poll three times, 50 ms apart, each for at most 10 ms."""
    known = 0
    number = 0
    async with aiowheel.Timer() as timer:
        async for _ in timer.interval(0.05, first=0):
            number += 1
            async with timer.move_on_after(0.01) as budget:
                known = await ask(number)
            print(f"poll {number}:", "still" if budget.expired() else "fresh", known)
            if number == 3:
                break


asyncio.run(main())
