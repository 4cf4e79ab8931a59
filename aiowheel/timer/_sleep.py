"""A task that sleeps on the wheel. Rank 1.

Interpreted, as is every coroutine that suspends: mypyc's would throw what ends the wait by a call
that Python 3.12 deprecates, and where warnings are errors that hides the cancellation.
"""

from __future__ import annotations

from asyncio import get_running_loop
from asyncio import sleep as yield_to_loop
from typing import TypeVar

from aiowheel._units import FOREVER, delay_to_ns
from aiowheel.timer._driver import Driver
from aiowheel.timer._wakeup import Wakeup

T = TypeVar("T")


async def sleep_on(driver: Driver, delay: object, result: T) -> T:
    """`Timer.sleep`, for the driver of a timer that may be closed before this starts."""
    delay_ns = delay_to_ns("delay", delay)
    if delay_ns <= 0:
        await yield_to_loop(0)
        return result
    future = get_running_loop().create_future()
    now = driver.checked_now()
    wakeup = Wakeup(min(now + delay_ns, FOREVER), future)
    driver.arm(wakeup, now)
    try:
        await future
    finally:
        wakeup.cancel()
    return result
