"""The shared timer of a loop: created at its first use, closed with the loop. Rank 1.

It has no driver task, because `asyncio.run` cancels all tasks before it waits for their clean-up,
and timeouts in that clean-up must still work. A driver task would also be in `asyncio.all_tasks()`.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import Any, TypeVar, TypeVarTuple, Unpack, cast, overload

from aiowheel._arguments import safe_repr
from aiowheel._types import Delay, Missed
from aiowheel.timer import _timeout
from aiowheel.timer._driver import Driver
from aiowheel.timer._handle import TimerHandle, armed_after, armed_at
from aiowheel.timer._periodic import Periodic
from aiowheel.timer._timeout import MoveOn, Timeout
from aiowheel.timer._timer import Timer

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_ATTRIBUTE = "_aiowheel_timer"


def current_timer() -> Timer:
    """Return the shared timer of the running loop, with a tick of 1 ms and levels of 256 buckets.

    Raises:
        RuntimeError: No loop is running in this thread.
    """
    loop = get_running_loop()
    # Stored on the loop itself: it then lives as long as the loop, and the look-up is cheapest.
    timer = getattr(loop, _ATTRIBUTE, None)
    return _open_on(loop) if timer is None else cast(Timer, timer)


def check_timer(timer: object) -> None:
    """Raise TypeError unless *timer* is a timer or None."""
    if timer is not None and not isinstance(timer, Timer):
        raise TypeError(f"timer must be a Timer or None, got {safe_repr(timer)}")


def chosen_timer(timer: object) -> Timer:
    """Return the argument *timer*; for None the shared timer of the running loop.

    Raises:
        TypeError: *timer* is neither a timer nor None.
        RuntimeError: *timer* is None, and no loop is running in this thread.
    """
    check_timer(timer)
    return current_timer() if timer is None else cast(Timer, timer)


def _current_driver() -> Driver:
    return cast(Driver, current_timer()._driver)


def _open_on(loop: AbstractEventLoop) -> Timer:
    timer = Timer()
    timer.share(loop)
    setattr(loop, _ATTRIBUTE, timer)
    # A loop has no hook for its end. Pending callbacks usually refer to the loop, and through it to
    # their wheel; closing the timer breaks that cycle.
    loop.close = partial(_close_both, loop, loop.close, timer)  # type: ignore[method-assign]
    return timer


def _close_both(loop: AbstractEventLoop, close: Callable[[], None], timer: Timer) -> None:
    close()
    timer.close_with_loop()
    # Without these references the loop is in no cycle. A library may have replaced `close` as well.
    own = vars(loop)
    closing = own.get("close")
    if isinstance(closing, partial) and closing.func is _close_both:
        del own["close"]
    own.pop(_ATTRIBUTE, None)


def call_later(
    delay: Delay,
    callback: Callable[[Unpack[Ts]], object],
    *args: Unpack[Ts],
    context: Context | None = None,
) -> TimerHandle:
    """`Timer.call_later` on the running loop's shared timer."""
    return armed_after(_current_driver(), delay, callback, args, context)


def call_at(
    when: Delay,
    callback: Callable[[Unpack[Ts]], object],
    *args: Unpack[Ts],
    context: Context | None = None,
) -> TimerHandle:
    """`Timer.call_at` on the running loop's shared timer."""
    return armed_at(_current_driver(), when, callback, args, context)


def every(
    period: Delay,
    fn: Callable[[Unpack[Ts]], object],
    *args: Unpack[Ts],
    missed: Missed = "skip",
    jitter: Delay = 0.0,
    first: Delay | None = None,
) -> Periodic:
    """`Timer.every` on the running loop's shared timer; the calls end with the loop."""
    timer = current_timer()
    return timer.every(period, fn, *args, missed=missed, jitter=jitter, first=first)


def interval(
    period: Delay, *, missed: Missed = "skip", first: Delay | None = None
) -> AsyncIterator[float]:
    """`Timer.interval` on the running loop's shared timer."""
    return current_timer().interval(period, missed=missed, first=first)


@overload
def sleep(delay: Delay) -> Coroutine[Any, Any, None]: ...


@overload
def sleep(delay: Delay, result: T) -> Coroutine[Any, Any, T]: ...


def sleep(delay: Delay, result: object = None) -> Coroutine[Any, Any, object]:
    """`Timer.sleep` on the running loop's shared timer."""
    return current_timer().sleep(delay, result)


def timeout(delay: Delay | None) -> Timeout:
    """`Timer.timeout` on the running loop's shared timer; in place of `asyncio.timeout`."""
    return _timeout.timeout_after(_current_driver(), delay)


def timeout_at(when: Delay | None) -> Timeout:
    """`Timer.timeout_at` on the running loop's shared timer."""
    return _timeout.timeout_at(_current_driver(), when)


def move_on_after(delay: Delay | None) -> MoveOn:
    """`Timer.move_on_after` on the running loop's shared timer."""
    return _timeout.move_on_after(_current_driver(), delay)


def move_on_at(when: Delay | None) -> MoveOn:
    """`Timer.move_on_at` on the running loop's shared timer."""
    return _timeout.move_on_at(_current_driver(), when)


def wait_for(fut: Awaitable[T], timeout: Delay | None) -> Coroutine[Any, Any, T]:
    """`Timer.wait_for` on the running loop's shared timer; in place of `asyncio.wait_for`."""
    return current_timer().wait_for(fut, timeout)
