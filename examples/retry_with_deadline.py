"""Retry with a doubling pause, a timeout for each attempt, and one deadline for all attempts.

Runs on virtual time, without waiting; `asyncio.run(main())` does the same in real time.

Prints:
    0 s: attempt 1 is refused
    3 s: attempt 2 takes too long
    5 s: attempt 3 is refused
    9 s: the answer is 42
    9 s: attempt 1 is refused
    12 s: attempt 2 takes too long
    14 s: out of time
    timers left: 0
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import aiowheel
from aiowheel.testing import VirtualClockEventLoop

T = TypeVar("T")


async def retry(
    attempt: Callable[[int], Awaitable[T]], *, each: float, deadline: float, pause: float = 1.0
) -> T:
    """Repeat the attempt until it succeeds.

    Raises:
        TimeoutError: No attempt succeeded within *deadline* seconds.
    """
    async with aiowheel.timeout(deadline):
        number = 1
        while True:
            try:
                async with aiowheel.timeout(each):
                    return await attempt(number)
            except ConnectionRefusedError:
                say(f"attempt {number} is refused")
            except TimeoutError:  # of this attempt; the outer timeout is a cancellation here
                say(f"attempt {number} takes too long")
            await aiowheel.sleep(pause)
            number += 1
            pause *= 2


def say(text: str) -> None:
    """Print with the time."""
    print(f"{asyncio.get_running_loop().time():.0f} s: {text}")


async def moody(number: int) -> int:
    """Refuse attempts 1 and 3, answer attempt 2 too late, and answer attempt 4."""
    if number == 2:
        await asyncio.Event().wait()
    if number < 4:
        raise ConnectionRefusedError
    return 42


async def main() -> None:
    """Retry with enough time and with too little."""
    say(f"the answer is {await retry(moody, each=2, deadline=30)}")
    try:
        await retry(moody, each=2, deadline=5)
    except TimeoutError:
        say("out of time")
    print("timers left:", len(aiowheel.current_timer()))


with asyncio.Runner(loop_factory=VirtualClockEventLoop) as runner:
    runner.run(main())
