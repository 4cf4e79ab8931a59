"""The timer that every loop has: made on first use, gone with the loop. Rank 1.

It has no driver task. `asyncio.run` cancels all tasks before it waits for their clean-up, and the
timeouts of that clean-up must still work; nor should it show up in `asyncio.all_tasks()`.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from typing import TypeVar, TypeVarTuple, Unpack, cast

from aiowheel.timer._driver import Driver
from aiowheel.timer._handle import TimerHandle, armed_after, armed_at
from aiowheel.timer._periodic import Periodic
from aiowheel.timer._timeout import Timeout, timeout_after
from aiowheel.timer._timer import Timer

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_ATTRIBUTE = "_aiowheel_timer"


def current_timer() -> Timer:
    """The shared timer of the running loop: tick 1 ms, 256 buckets a level.

    Raises:
        RuntimeError: No loop is running in this thread.
    """
    loop = get_running_loop()
    # Kept on the loop itself: nothing else lives exactly as long, and no look-up is cheaper.
    timer = getattr(loop, _ATTRIBUTE, None)
    return _open_on(loop) if timer is None else cast(Timer, timer)


def _current_driver() -> Driver:
    # Not asked whether it may be called: it is the running loop's own.
    return cast(Driver, current_timer()._driver)


def _open_on(loop: AbstractEventLoop) -> Timer:
    timer = Timer()
    timer.bind(loop)
    setattr(loop, _ATTRIBUTE, timer)
    close = loop.close

    def close_both() -> None:
        close()
        timer.close_for_good()

    # A loop tells nobody that it is being closed. What is still pending then refers, more often
    # than not, to the loop and so to the wheel it hangs in: a cycle the collector cannot see.
    loop.close = close_both  # type: ignore[method-assign]
    return timer


def call_later(
    delay: object,
    callback: Callable[[Unpack[Ts]], object],
    *args: Unpack[Ts],
    context: Context | None = None,
) -> TimerHandle:
    """`Timer.call_later` on the running loop's shared timer."""
    return armed_after(_current_driver(), delay, callback, args, context)


def call_at(
    when: object,
    callback: Callable[[Unpack[Ts]], object],
    *args: Unpack[Ts],
    context: Context | None = None,
) -> TimerHandle:
    """`Timer.call_at` on the running loop's shared timer."""
    return armed_at(_current_driver(), when, callback, args, context)


def every(
    period: object,
    fn: Callable[[Unpack[Ts]], object],
    *args: Unpack[Ts],
    missed: str = "skip",
    jitter: object = 0.0,
    first: object = None,
) -> Periodic:
    """`Timer.every` on the running loop's shared timer; ends with the loop."""
    timer = current_timer()
    return timer.every(period, fn, *args, missed=missed, jitter=jitter, first=first)


def sleep(delay: object, result: T = None) -> Coroutine[object, object, T]:  # type: ignore[assignment]
    """`Timer.sleep` on the running loop's shared timer."""
    return current_timer().sleep(delay, result)


def timeout(delay: object) -> Timeout:
    """`Timer.timeout` on the running loop's shared timer; in place of `asyncio.timeout`."""
    return timeout_after(_current_driver(), delay)


def timeout_at(when: object) -> Timeout:
    """`Timer.timeout_at` on the running loop's shared timer."""
    return current_timer().timeout_at(when)


def wait_for(fut: Awaitable[T], timeout: object) -> Coroutine[object, object, T]:
    """`Timer.wait_for` on the running loop's shared timer; in place of `asyncio.wait_for`."""
    return current_timer().wait_for(fut, timeout)
