"""Test code that waits for minutes without waiting: advance the clock by hand.

Prints:
    0 s: 3 tries left
    after 90 s: 0 tries left
"""

from collections.abc import Callable

import aiowheel


def retry(timer: aiowheel.Timer, attempt: Callable[[int], bool], tries: int) -> None:
    """Try now and every 30 s until an attempt succeeds or no tries are left."""
    if not attempt(tries) and tries > 0:
        timer.call_later(30.0, retry, timer, attempt, tries - 1)


left: list[int] = []


def fail(tries: int) -> bool:
    """Record the number of tries left, and fail."""
    left.append(tries)
    return False


clock = aiowheel.ManualTimer()
retry(clock, fail, 3)
print(f"{clock.time():.0f} s: {left[-1]} tries left")
clock.advance(90.0)
print(f"after {clock.time():.0f} s: {left[-1]} tries left")
