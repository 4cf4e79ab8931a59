"""A task that sleeps on the wheel. Rank 1."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from asyncio import sleep as yield_to_loop
from typing import TypeVar, cast

from mypy_extensions import mypyc_attr

from aiowheel._units import delay_to_ns
from aiowheel.errors import TimerClosedError
from aiowheel.timer._alarm import Alarm
from aiowheel.timer._driver import Driver

T = TypeVar("T")


@mypyc_attr(acyclic=True, free_list_len=1)
class Wakeup(Alarm):
    """Sets the future of a sleeper; its payload."""

    __slots__ = ()

    def fire(self) -> None:
        future = cast("Future[None]", self._payload)
        self._payload = None
        if not future.done():
            future.set_result(None)

    def drop(self) -> None:
        future = cast("Future[None]", self._payload)
        self._payload = None
        if not future.done() and not future.get_loop().is_closed():
            future.set_exception(TimerClosedError("the timer was closed while a task slept on it"))


async def sleep_on(driver: Driver, delay: object, result: T) -> T:
    """`Timer.sleep`, for the driver of an open timer."""
    delay_ns = delay_to_ns("delay", delay)
    if delay_ns <= 0:
        await yield_to_loop(0)
        return result
    future = get_running_loop().create_future()
    wakeup = Wakeup(driver.deadline_after(delay_ns), future)
    driver.arm(wakeup, driver.now_ns())
    try:
        await future
    finally:
        wakeup.cancel()
    return result
