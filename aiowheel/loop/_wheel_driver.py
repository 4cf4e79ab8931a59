"""The driver of a loop's own timers: it arms, fires and reports like the base loop. Rank 3."""

from __future__ import annotations

import math
from asyncio import AbstractEventLoop, BaseEventLoop
from asyncio.log import logger
from collections.abc import Callable
from contextvars import Context
from threading import RLock
from typing import Any, Final, cast

from mypy_extensions import i64

from aiowheel._units import clock_to_ns, delay_to_ns, ns_to_seconds, seconds_to_ns
from aiowheel.loop._debug_notes import DebugNotes
from aiowheel.loop._loop_handle import LoopHandle
from aiowheel.timer._driver import LoopDriver, TimerCounts, TimerTask
from aiowheel.timer._interpreter import captured_context

_TICK_NS: Final = 1_000_000  # the resolution of epoll and of uvloop
_WHEEL_SIZE: Final = 256


class SliceTimed(BaseException):
    """Raised into uvloop in debug mode; the mixin does not pass it to the exception handler."""


class WheelDriver(LoopDriver):
    """The driver of a wheel loop; its `call_later` and `call_at` replace those of the loop.

    Args:
        loop: The loop whose timers these are.
        arm_alarm: The base class's `call_later` on uvloop, its `call_at` on other loops.
        check_caller: Called in debug mode with the callback and the method's name; raises if the
            thread is not the loop's or the callback is a coroutine function.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        arm_alarm: Callable[..., object],
        check_caller: Callable[[object, str], object],
    ) -> None:
        super().__init__(loop, _TICK_NS, _WHEEL_SIZE, arm_alarm)
        self.sorts_overdue = True
        self.debug = False
        self.is_asyncios = isinstance(loop, BaseEventLoop)
        self._check_caller = check_caller
        # Reentrant, because a finalizer or a signal handler may cancel a handle during a cancel.
        self._lock = RLock()
        self._transit = TimerCounts()  # for handles of other threads, until they are filed
        self._transit.driver = self

    def set_debug(self, *, enabled: bool) -> None:
        """Turn debug mode on or off."""
        self.debug = enabled
        self.on_wake = self._timed_slice if enabled and not self.is_asyncios else self.run_slice

    def check_thread(self) -> None:
        # The loop calls `run_in`, so that its thread need not be looked up.
        if self.runs_elsewhere():
            self._check_running_loop()

    # --- arming -----------------------------------------------------------------------------

    def call_later(
        self,
        delay: object,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> LoopHandle:
        """Arm as `asyncio.loop.call_later` does. O(1)."""
        if type(delay) is float:
            seconds = delay
        elif delay is None:
            raise TypeError("delay must not be None")
        else:
            seconds = _as_asyncio("delay", delay)
        now = self.clock()
        when = now + seconds
        return self._call(now, when, when, callback, args, context, "call_later")

    def call_at(
        self,
        when: object,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> LoopHandle:
        """Arm as `asyncio.loop.call_at` does. O(1)."""
        if type(when) is float:
            seconds = when
        elif when is None:
            raise TypeError("when cannot be None")
        else:
            seconds = _as_asyncio("when", when)
        return self._call(self.clock(), seconds, when, callback, args, context, "call_at")

    def _call(
        self,
        now: float,
        seconds: float,
        when: object,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: Context | None,
        method: str,
    ) -> LoopHandle:
        if self.closed:
            raise RuntimeError("Event loop is closed")
        if self.debug:
            self._check_caller(callback, method)
        if context is None:
            context = captured_context()
        deadline = seconds_to_ns("delay" if method == "call_later" else "when", seconds)
        now_ns = clock_to_ns(now)
        delay = max(deadline - now_ns, 0)
        handle = LoopHandle(when, deadline, delay, callback, args, context)
        if self.debug:
            notes = self._notes()
            notes.note_caller()
            handle.note(notes)
        if self.runs_elsewhere():
            # asyncio allows such a call outside debug mode, and it must not corrupt the wheel.
            handle.enter_transit(self._transit)
            self.own_loop.call_soon_threadsafe(self.receive, handle)
        else:
            self.arm(handle, now_ns)
        return handle

    # --- calls from other threads -----------------------------------------------------------

    def receive(self, handle: LoopHandle) -> None:
        """File a handle that another thread armed, unless it was cancelled or filed meanwhile."""
        with self._lock:
            if handle.in_transit(self._transit):
                self.arm(handle, self.now_ns())

    def withdraw(self, handle: LoopHandle) -> bool:
        """Cancel *handle* from any thread; return whether this call stops its callback."""
        with self._lock:
            if handle.in_transit(self._transit):
                return handle.leave_transit()
            if handle in self.withdrawn:
                return False
            # The order matters: the loop's thread first removes a handle from the wheel, and then
            # looks for it in this set. One of the two threads therefore always finds the change of
            # the other.
            self.withdrawn.add(handle)
            if not handle.pending:
                self.withdrawn.discard(handle)
                return False
        try:
            self.own_loop.call_soon_threadsafe(self._take_out, handle)
        except RuntimeError:  # the loop has been closed, and its wheel with it
            self.withdrawn.discard(handle)
        return True

    def _take_out(self, handle: LoopHandle) -> None:
        with self._lock:
            if handle in self.withdrawn:
                self.withdrawn.discard(handle)
                handle.leave_wheel()

    def was_withdrawn(self, handle: LoopHandle) -> bool:
        """Return whether another thread cancelled a handle that has just left the wheel."""
        with self._lock:
            if handle not in self.withdrawn:
                return False
            self.withdrawn.discard(handle)
            return True

    def close(self) -> None:
        self._transit.driver = None
        try:
            super().close()
        finally:
            self.withdrawn.clear()

    def _notes(self) -> DebugNotes:
        return DebugNotes(self.own_loop if self.is_asyncios else None)

    # --- firing -----------------------------------------------------------------------------

    def _timed_slice(self) -> None:
        # uvloop reports a slow slice as one slow callback unless it raises. `_fire_noted` times
        # each callback separately.
        self.run_slice()
        raise SliceTimed

    def _fire(self, task: TimerTask, now: i64) -> i64:
        handle = cast(LoopHandle, task)
        if self.withdrawn and self.was_withdrawn(handle):
            handle.drop()
            self.counts.expired -= 1
            self.counts.cancelled += 1
            return now
        if self.debug:
            return self._fire_noted(handle, now)
        return super()._fire(handle, now)

    def _fire_noted(self, handle: LoopHandle, now: i64) -> i64:
        """Fire in debug mode; on uvloop, also report a slow callback as asyncio's loop does."""
        if handle.notes is None:  # the handle was armed before debug mode was enabled
            handle.note(self._notes())
        if self.is_asyncios:
            return super()._fire(handle, now)
        named = handle.asyncio_handle()
        after = super()._fire(handle, now)
        seconds = ns_to_seconds(after - now)
        loop: Any = self.own_loop
        if seconds > loop.slow_callback_duration:
            logger.warning("Executing %r took %.3f seconds", named, seconds)
        return after

    def report(self, context: dict[str, object]) -> None:
        handle = cast(LoopHandle, context["handle"])
        context["message"] = f"Exception in callback {handle.text()}"
        notes = handle.notes
        if notes is not None and notes.source_traceback is not None:
            context["source_traceback"] = notes.source_traceback
        super().report(context)


def _as_asyncio(name: str, seconds: object) -> float:
    """Convert a time to seconds: any integer, including bools, as asyncio does, or a `Delay`."""
    if not isinstance(seconds, int):
        return ns_to_seconds(delay_to_ns(name, seconds))
    try:
        return float(seconds)
    except OverflowError:
        return math.inf if seconds > 0 else -math.inf
