"""Test an hour of timeouts without waiting: a loop whose clock jumps, and one moved by hand.

Prints:
    3600.0 s: the session has ended
    0.0 s: try 1
    30.0 s: try 2
    60.0 s: try 3
    60.0 s: that was a minute
"""

import asyncio

import aiowheel
from aiowheel.testing import VirtualClockEventLoop


async def session() -> None:
    """End after an hour without a message."""
    try:
        async with aiowheel.timeout(3600):
            await asyncio.Event().wait()
    except TimeoutError:
        say("the session has ended")


async def retry() -> None:
    """Try without end, twice a minute."""
    tries = 0
    while True:
        tries += 1
        say(f"try {tries}")
        await asyncio.sleep(30)


async def a_minute(loop: VirtualClockEventLoop) -> None:
    """Advance the clock by one minute."""
    task = asyncio.create_task(retry())
    await loop.advance(60)
    say("that was a minute")
    task.cancel()


def say(text: str) -> None:
    """Print with the time on the loop's clock."""
    print(f"{asyncio.get_running_loop().time()} s: {text}")


with asyncio.Runner(loop_factory=VirtualClockEventLoop) as runner:
    runner.run(session())

by_hand = VirtualClockEventLoop(autojump=False)
by_hand.run_until_complete(a_minute(by_hand))
by_hand.close()
