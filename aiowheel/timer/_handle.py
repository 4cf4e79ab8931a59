"""The handle that `call_later` returns. Rank 1.

A handle duck-types `asyncio.TimerHandle`, and is itself the entry in the wheel.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from types import FunctionType, MethodType
from typing import Final, cast

from mypy_extensions import i64, mypyc_attr

from aiowheel._arguments import safe_repr
from aiowheel._callbacks import START_A_TASK, is_coroutine_function, plain_callback
from aiowheel._types import Delay
from aiowheel._units import FOREVER, delay_to_ns, ns_to_seconds
from aiowheel.timer._driver import Driver, TimerCounts, TimerTask
from aiowheel.timer._interpreter import captured_context
from aiowheel.wheel._bucket import Node

# Final makes these statics of the compiled module; an imported name costs a look-up for each call.
_function: Final = FunctionType
_method: Final = MethodType

WAITING: Final = 0
FIRED: Final = 1
CANCELLED: Final = 2


@mypyc_attr(acyclic=True, free_list_len=1)
class TimerHandle(TimerTask):
    """A callback that runs at its deadline, unless it is cancelled before.

    Firing, cancelling and closing the timer drop the callback, its arguments and its context at
    once. Every method stays safe to call after that. Handles compare by identity.
    """

    __slots__ = (
        "_args",
        "_context",  # None: the callback runs in an empty context, created when it fires
        "_delay",
        "_state",
    )

    def __init__(
        self,
        deadline: i64,
        delay: i64,
        callback: object,
        args: tuple[object, ...],
        context: Context | None,
    ) -> None:
        self.prev: Node | None = None
        self.next: Node | None = None
        self._counts = None
        self._filed = 0
        self._deadline = deadline
        self._delay = delay
        self._state: i64 = WAITING
        self._context = context
        kind = type(callback)
        if kind is _method and not args:
            # A bound method is stored as its function and its object, so that the method object of
            # 64 bytes, created for this call, does not live until the deadline.
            method = cast(MethodType, callback)
            owner: object = method.__self__
            if type(owner) is not tuple:  # a tuple would be taken for the arguments
                self._payload = method.__func__
                self._args: object = owner
                return
        # A plain function, the most common callback, is callable without a further check.
        elif kind is not _function and not callable(callback):
            plain_callback("callback", callback, START_A_TASK)  # raises
        self._payload = callback
        self._args = args

    def when(self) -> float:
        """Return the deadline in seconds on the scale of `timer.time()`; `inf` for never."""
        return ns_to_seconds(self._deadline)

    def cancel(self) -> bool:
        """Cancel the callback; return True exactly once, and only if it had not fired. O(1).

        Raises:
            ForeignLoopError: The timer's loop runs in another thread.
        """
        counts = self._counts
        if counts is None:
            return False
        driver = cast(TimerCounts, counts).driver
        if driver is not None:
            driver.check_thread()
        super().cancel()
        self._state = CANCELLED
        self._args = None
        self._context = None
        return True

    def cancelled(self) -> bool:
        """Return whether the callback was cancelled, by `cancel` or by closing the timer."""
        return self._state == CANCELLED

    def fired(self) -> bool:
        """Return whether the callback has run or is running."""
        return self._state == FIRED

    def get_context(self) -> Context | None:
        """Return the context of the callback; None if it is empty or was dropped."""
        return self._context

    def touch(self, delay: Delay | None = None) -> bool:
        """Move the deadline to now + *delay*, as a server does for every received message.

        Args:
            delay: Seconds or timedelta; default: the delay the handle was created with.

        Returns:
            False when the callback has fired or was cancelled; nothing happens then.

        Raises:
            ForeignLoopError: Called from another loop or thread than the timer's.

        Cost: one clock reading and one write when the deadline moves later; O(1) when earlier.
        """
        ns = self._delay if delay is None else delay_to_ns("delay", delay)
        counts = self._counts
        if counts is None:
            return False
        driver = cast(TimerCounts, counts).driver
        if driver is None:
            return False
        now = driver.checked_now()
        driver.move(self, min(now + ns, FOREVER), now)
        return True

    def reschedule(self, when: Delay) -> bool:
        """Move the deadline to *when*, seconds on the scale of `timer.time()`.

        Returns:
            False when the callback has fired or was cancelled; nothing happens then.

        Raises:
            ForeignLoopError: Called from another loop or thread than the timer's.

        Cost: one write when later, O(1) when earlier.
        """
        deadline = delay_to_ns("when", when)
        counts = self._counts
        if counts is None:
            return False
        driver = cast(TimerCounts, counts).driver
        if driver is None:
            return False
        driver.move(self, deadline, driver.checked_now())
        return True

    def fire(self) -> None:
        callback = cast(Callable[..., object], self._payload)
        args = self._args
        context = self._context
        self._state = FIRED
        self._payload = None
        self._args = None
        self._context = None
        if context is None:
            context = Context()
        try:
            if type(args) is not tuple:
                context.run(callback, args)  # the function and the object of a bound method
            elif not args:
                # Without a star, which costs a compiled caller more than the call.
                context.run(callback)
            else:
                context.run(callback, *args)
        except BaseException:
            self._context = context  # from Python 3.12, the loop's exception handler runs in it
            raise

    def forget(self) -> None:
        self._context = None

    def drop(self) -> None:
        self._state = CANCELLED
        self._payload = None
        self._args = None
        self._context = None

    def __repr__(self) -> str:
        if self.cancelled():
            state = "cancelled"
        elif self.fired():
            state = "fired"
        else:
            state = f"callback={getattr(self._payload, '__qualname__', self._payload)!s}"
        return f"<TimerHandle when={self.when()} {state}>"


def check_context(context: object) -> None:
    """Raise TypeError unless *context* is a context."""
    if not isinstance(context, Context):
        raise TypeError(f"context must be a contextvars.Context or None, got {safe_repr(context)}")


# Both functions take the callback's arguments as a tuple, because passing them with a star would
# double the cost of a compiled call.


def armed_after(
    driver: Driver,
    delay: object,
    callback: object,
    args: tuple[object, ...],
    context: Context | None,
) -> TimerHandle:
    """Arm a new handle *delay* from now, as `Timer.call_later` does."""
    delay_ns = max(delay_to_ns("delay", delay), 0)
    now = driver.checked_now()
    return _armed(driver, now, now + delay_ns, delay_ns, callback, args, context)


def armed_at(
    driver: Driver,
    when: object,
    callback: object,
    args: tuple[object, ...],
    context: Context | None,
) -> TimerHandle:
    """Arm a new handle for the time *when*, as `Timer.call_at` does."""
    deadline = delay_to_ns("when", when)
    now = driver.checked_now()
    return _armed(driver, now, deadline, max(deadline - now, 0), callback, args, context)


def _armed(
    driver: Driver,
    now: i64,
    deadline: i64,
    delay: i64,
    callback: object,
    args: tuple[object, ...],
    context: Context | None,
) -> TimerHandle:
    if context is None:
        context = captured_context()
    else:
        check_context(context)
    if is_coroutine_function(callback):
        plain_callback("callback", callback, START_A_TASK)  # raises
    handle = TimerHandle(min(deadline, FOREVER), delay, callback, args, context)
    driver.arm(handle, now)
    return handle
