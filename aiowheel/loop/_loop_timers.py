"""`call_later` and `call_at` of a loop whose timers are a wheel. Rank 3."""

from __future__ import annotations

import sys
from asyncio.format_helpers import extract_stack
from collections.abc import Callable
from contextvars import Context
from types import FrameType

from aiowheel._units import clock_to_ns, delay_to_ns, ns_to_seconds, seconds_to_ns
from aiowheel.loop._loop_handle import LoopHandle
from aiowheel.timer._handle import captured_context
from aiowheel.timer._loop_driver import LoopDriver


class WheelLoopDriver(LoopDriver):
    """Reports as the loop itself would."""

    def report(self, context: dict[str, object]) -> None:
        handle = context.get("handle")
        if isinstance(handle, LoopHandle):
            context["message"] = str(context["message"]).replace("timer callback", "callback")
            if handle._source_traceback is not None:
                context["source_traceback"] = handle._source_traceback
        super().report(context)


class LoopTimers:
    """Stands in a loop for the two methods, with the arguments and errors of asyncio's.

    Args:
        driver: Runs on the loop, on the loop's own former `call_at`.
        check_caller: Called in debug mode with the callback and the method's name; raises when the
            thread is not the loop's or the callback is a coroutine function.
    """

    def __init__(self, driver: LoopDriver, check_caller: Callable[[object, str], object]) -> None:
        self._driver = driver
        self._check_caller = check_caller
        self.debug = False

    def call_later(
        self,
        delay: object,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> LoopHandle:
        """As `asyncio.loop.call_later`. O(1)."""
        if type(delay) is float:
            seconds = delay
        elif delay is None:
            raise TypeError("delay must not be None")
        else:
            seconds = ns_to_seconds(delay_to_ns("delay", delay))
        now = self._driver.clock()
        return self._call(now, now + seconds, callback, args, context, "call_later")

    def call_at(
        self,
        when: object,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> LoopHandle:
        """As `asyncio.loop.call_at`. O(1)."""
        if type(when) is float:
            return self._call(self._driver.clock(), when, callback, args, context, "call_at")
        if when is None:
            raise TypeError("when cannot be None")
        seconds = float(when) if isinstance(when, int) else ns_to_seconds(delay_to_ns("when", when))
        return self._call(self._driver.clock(), seconds, callback, args, context, "call_at")

    def _call(
        self,
        now: float,
        when: float,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: Context | None,
        method: str,
    ) -> LoopHandle:
        driver = self._driver
        if driver.closed:
            raise RuntimeError("Event loop is closed")
        if self.debug:
            self._check_caller(callback, method)
        if context is None:
            context = captured_context()
        handle = LoopHandle(when, seconds_to_ns("when", when), callback, args, context)
        if self.debug:
            handle._source_traceback = _where()
        driver.arm(handle, clock_to_ns(now))
        return handle


def _where() -> object:
    """The stack of whoever called in; this module's own frames exist only where it is pure."""
    frame: FrameType | None = sys._getframe(0)
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return extract_stack(frame)
