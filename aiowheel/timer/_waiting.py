"""Coroutines that wait on the wheel: `sleep`, `wait_for` and `interval`. Rank 1.

This module is interpreted, like every coroutine that suspends; see `_closing.py`.
"""

from __future__ import annotations

import sys
from asyncio import CancelledError, Future, ensure_future, get_running_loop
from asyncio import sleep as yield_to_loop
from collections.abc import Awaitable
from typing import TypeVar

from aiowheel._types import Delay
from aiowheel._units import FOREVER, delay_to_ns, ns_to_seconds
from aiowheel.timer._driver import Driver
from aiowheel.timer._handle import TimerHandle
from aiowheel.timer._periodic import Schedule
from aiowheel.timer._timeout import Timeout, Wakeup

T = TypeVar("T")


async def sleep(driver: Driver, delay: Delay, result: T) -> T:
    """Wait as `Timer.sleep` does; the timer may be closed before the coroutine starts."""
    delay_ns = delay_to_ns("delay", delay)
    now = driver.checked_now()
    if delay_ns <= 0:
        await yield_to_loop(0)
        return result
    await _sleep_until(driver, min(now + delay_ns, FOREVER))
    return result


async def _sleep_until(driver: Driver, deadline_ns: int) -> None:
    future = get_running_loop().create_future()
    wakeup = Wakeup(deadline_ns, future)
    driver.arm(wakeup, driver.now_ns())
    try:
        await future
    finally:
        wakeup.cancel()


class Interval:
    """The asynchronous iterator of `Timer.interval`: each step waits for the next tick."""

    def __init__(self, driver: Driver, schedule: Schedule) -> None:
        self._driver = driver
        self._schedule = schedule

    def __aiter__(self) -> Interval:
        return self

    async def __anext__(self) -> float:
        driver = self._driver
        driver.check()
        if self._schedule.next_ns > driver.now_ns():
            await _sleep_until(driver, self._schedule.next_ns)
        else:
            await yield_to_loop(0)  # an iteration that is always late must let other tasks run
        now = driver.now_ns()
        self._schedule.advance(now)
        return ns_to_seconds(now)


# `wait_for` behaves as `asyncio.wait_for` of the running Python, whose source is the specification.
# Python 3.11 runs a coroutine in a task; later versions await it directly.


async def wait_for(driver: Driver, fut: Awaitable[T], timeout: Delay | None) -> T:
    """Wait as `Timer.wait_for` does; the timer may be closed before the coroutine starts."""
    driver.check()
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
    """Return the result if *fut* is already done; a coroutine never starts."""
    future = ensure_future(fut, loop=get_running_loop())
    if not future.done():
        await _cancel_and_wait(future)
        return _result_in_time(future)
    return future.result()


async def _wait_for_task(driver: Driver, fut: Awaitable[T], delay_ns: int) -> T:
    waiter: Future[None] = get_running_loop().create_future()

    def release(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    now = driver.now_ns()
    bound = TimerHandle(min(now + delay_ns, FOREVER), delay_ns, release, (), None)
    driver.arm(bound, now)
    try:
        future = ensure_future(fut, loop=get_running_loop())
        future.add_done_callback(release)
        try:
            await waiter
        except CancelledError:
            if future.done():  # Python 3.11 prefers an existing result to the cancellation
                return future.result()
            await _cancel_and_wait(future)
            raise
        if future.done():
            return future.result()
        await _cancel_and_wait(future)
        return _result_in_time(future)
    finally:
        bound.cancel()


async def _cancel_and_wait(future: Future[T]) -> None:
    """Cancel and wait for the end, because a task must not run on after its caller has returned."""
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
    """Return the result of a cancelled future, or raise its own error, or else TimeoutError."""
    try:
        return future.result()
    except CancelledError as error:
        raise TimeoutError from error
