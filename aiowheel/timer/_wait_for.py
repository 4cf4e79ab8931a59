"""One awaitable with a bound. Rank 1.

Behaves as `asyncio.wait_for` of the running Python does; its source is the specification. Python
3.11 waits for a task of its own, later ones await in place, under a timeout.
"""

from __future__ import annotations

import sys
from asyncio import CancelledError, Future, ensure_future, get_running_loop
from collections.abc import Awaitable
from typing import TypeVar

from mypy_extensions import i64

from aiowheel._units import FOREVER, delay_to_ns
from aiowheel.timer._driver import Driver
from aiowheel.timer._handle import TimerHandle
from aiowheel.timer._timeout import Timeout

T = TypeVar("T")


async def wait_for(driver: Driver, fut: Awaitable[T], timeout: object) -> T:
    """`Timer.wait_for`, for the driver of a timer that may be closed before this starts."""
    if timeout is None:
        return await fut
    delay_ns = delay_to_ns("timeout", timeout)
    if delay_ns <= 0:
        return await _poll(fut)
    if sys.version_info >= (3, 12):
        async with Timeout(driver, driver.deadline_after(delay_ns)):
            return await fut
    return await _wait_for_task(driver, fut, delay_ns)


async def _poll(fut: Awaitable[T]) -> T:
    """The result if there is one already; a coroutine never starts."""
    future = ensure_future(fut)
    if not future.done():
        await _cancel_and_wait(future)
        return _result_in_time(future)
    return future.result()


async def _wait_for_task(driver: Driver, fut: Awaitable[T], delay_ns: i64) -> T:
    waiter: Future[None] = get_running_loop().create_future()

    def release(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    now = driver.checked_now()
    alarm = TimerHandle(min(now + delay_ns, FOREVER), delay_ns, release, (), None)
    driver.arm(alarm, now)
    try:
        future = ensure_future(fut)
        future.add_done_callback(release)
        try:
            await waiter
        except CancelledError:
            if future.done():  # 3.11 lets a result that is there win over the cancellation
                return future.result()
            await _cancel_and_wait(future)
            raise
        if future.done():
            return future.result()
        await _cancel_and_wait(future)
        return _result_in_time(future)
    finally:
        alarm.cancel()


async def _cancel_and_wait(future: Future[T]) -> None:
    """Cancel and wait for the end: a task must not run on behind the back of its caller."""
    ended: Future[None] = get_running_loop().create_future()

    def end(_: object) -> None:
        if not ended.done():
            ended.set_result(None)

    future.add_done_callback(end)
    try:
        future.cancel()
        await ended
    finally:
        future.remove_done_callback(end)


def _result_in_time(future: Future[T]) -> T:
    """What a cancelled future came to: a result or an error of its own, or else TimeoutError."""
    try:
        return future.result()
    except CancelledError as error:
        raise TimeoutError from error
