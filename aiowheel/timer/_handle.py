"""What `call_later` returns. Rank 1.

Duck-types `asyncio.TimerHandle`, and is itself the entry that hangs in the wheel.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, copy_context
from types import FunctionType, MethodType
from typing import Final, cast

from mypy_extensions import i64, mypyc_attr

from aiowheel._units import FOREVER, delay_to_ns, ns_to_seconds
from aiowheel.timer._alarm import Alarm
from aiowheel.timer._driver import Driver

# Final: statics of the compiled module, where an imported name is a look-up per call.
_copy_context: Final = copy_context
_function: Final = FunctionType
_method: Final = MethodType
_CANCELLED: Final = -1  # in _filed, where a tick is never negative


@mypyc_attr(acyclic=True, free_list_len=1)
class TimerHandle(Alarm):
    """A callback that waits for its deadline.

    Firing, cancelling and closing the timer drop the callback, its arguments and its context at
    once. Every method is safe for ever after. Handles compare by identity.
    """

    __slots__ = (
        "_args",
        "_context",  # None: run in an empty one, made when it fires
        "_delay",
    )

    def __init__(
        self,
        deadline: i64,
        delay: i64,
        callback: object,
        args: tuple[object, ...],
        context: Context | None,
    ) -> None:
        self._prev = None
        self._next = None
        self._tally = None
        self._filed = 0
        self._deadline = deadline
        self._delay = delay
        self._context = context
        kind = type(callback)
        if kind is _method and not args:
            # A bound method is kept as its two halves: the 64 bytes of the method object itself,
            # made for this one call, are not pinned until the deadline.
            method = cast(MethodType, callback)
            owner: object = method.__self__
            if type(owner) is not tuple:  # which would pass for arguments
                self._payload = method.__func__
                self._args: object = owner
                return
        # The commonest kind needs no call of a builtin to know that it can be called.
        if kind is not _function and not callable(callback):
            raise TypeError(f"callback must be callable, got {callback!r}")
        self._payload = callback
        self._args = args

    def when(self) -> float:
        """The deadline in seconds on the scale of `timer.time()`; `inf` for never."""
        return ns_to_seconds(self._deadline)

    def cancel(self) -> bool:
        """Withdraw the callback; True exactly once, and only if it was still waiting. O(1)."""
        if not super().cancel():
            return False
        self._filed = _CANCELLED
        self._args = None
        self._context = None
        return True

    def cancelled(self) -> bool:
        """Whether the callback was withdrawn, by `cancel` or by closing the timer."""
        return self._filed == _CANCELLED

    def fired(self) -> bool:
        """Whether the callback's turn has come; true already while it runs."""
        return self._tally is None and self._filed != _CANCELLED

    def get_context(self) -> Context | None:
        """The context the callback will run in; None when that is an empty one, or dropped."""
        return self._context

    def touch(self, delay: object = None) -> bool:
        """Push the deadline to now + *delay*, as a server does for every message it receives.

        Args:
            delay: Seconds or timedelta; default: the delay the handle was created with.

        Returns:
            False when the callback has fired or was cancelled; nothing happens then.

        Raises:
            ForeignLoopError: Called from another loop or thread than the timer's.

        Cost: one clock reading and one write when the deadline moves later; O(1) when earlier.
        """
        if delay is not None:
            ns = delay_to_ns("delay", delay)
        else:
            ns = self._delay
        tally = self._tally
        if tally is None:
            return False
        driver = cast(Driver, tally)
        driver.move(self, min(driver.checked_now() + ns, FOREVER))
        return True

    def reschedule(self, when: object) -> bool:
        """Move the deadline to *when*, seconds on the scale of `timer.time()`.

        Returns:
            False when the callback has fired or was cancelled; nothing happens then.

        Cost: one write when later, O(1) when earlier.
        """
        deadline = delay_to_ns("when", when)
        tally = self._tally
        if tally is None:
            return False
        driver = cast(Driver, tally)
        driver.check()
        driver.move(self, deadline)
        return True

    def fire(self) -> None:
        callback = cast(Callable[..., object], self._payload)
        args = self._args
        context = self._context
        self._payload = None
        self._args = None
        self._context = None
        if context is None:
            context = Context()
        if type(args) is tuple:
            context.run(callback, *args)
        else:
            context.run(callback, args)  # the two halves of a bound method

    def drop(self) -> None:
        self._filed = _CANCELLED
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


def captured_context() -> Context | None:
    """A copy of the caller's context; None when it is empty, which saves 64 bytes a timer."""
    return _copy_context() or None


# Both take the arguments as a tuple: to pass it on with a star costs a compiled caller as much as
# all the rest.


def armed_after(
    driver: Driver,
    delay: object,
    callback: object,
    args: tuple[object, ...],
    context: Context | None,
) -> TimerHandle:
    """What `Timer.call_later` does."""
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
    """What `Timer.call_at` does."""
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
    handle = TimerHandle(min(deadline, FOREVER), delay, callback, args, context)
    driver.arm(handle, now)
    return handle
