"""`call_later` and `call_at` of a loop whose timers are a wheel. Rank 3."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import Context
from typing import Final

from aiowheel._units import clock_to_ns, delay_to_ns, ns_to_seconds, seconds_to_ns
from aiowheel.loop._loop_handle import LoopHandle
from aiowheel.loop._wheel_driver import WheelDriver
from aiowheel.timer._handle import captured_context

_METHODS: Final = {"delay": "call_later", "when": "call_at"}  # by what is to be a number


class LoopTimers:
    """Stands in a loop for the two methods, with the arguments and errors of asyncio's.

    Args:
        driver: Turns the wheel.
        check_caller: Called in debug mode with the callback and the method's name; raises when the
            thread is not the loop's or the callback is a coroutine function.
    """

    def __init__(self, driver: WheelDriver, check_caller: Callable[[object, str], object]) -> None:
        self._driver = driver
        self._check_caller = check_caller

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
            seconds = _as_asyncio("delay", delay)
        now = self._driver.clock()
        return self._call(now, now + seconds, callback, args, context, "delay")

    def call_at(
        self,
        when: object,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> LoopHandle:
        """As `asyncio.loop.call_at`. O(1)."""
        if type(when) is float:
            return self._call(self._driver.clock(), when, callback, args, context, "when")
        if when is None:
            raise TypeError("when cannot be None")
        seconds = _as_asyncio("when", when)
        return self._call(self._driver.clock(), seconds, callback, args, context, "when")

    def _call(
        self,
        now: float,
        when: float,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: Context | None,
        name: str,
    ) -> LoopHandle:
        driver = self._driver
        if driver.closed:
            raise RuntimeError("Event loop is closed")
        if driver.debug:
            self._check_caller(callback, _METHODS[name])
        if context is None:
            context = captured_context()
        deadline = seconds_to_ns(name, when)
        now_ns = clock_to_ns(now)
        delay = max(deadline - now_ns, 0)
        handle = LoopHandle(when, deadline, delay, callback, args, context)
        if driver.debug:
            watched = handle._watched = driver.watched()
            watched.note_caller()
        driver.arm(handle, now_ns)
        return handle


def _as_asyncio(name: str, seconds: object) -> float:
    """Any integer, a bool too, as asyncio's loops take them; besides, what a `Timer` takes."""
    if not isinstance(seconds, int):
        return ns_to_seconds(delay_to_ns(name, seconds))
    try:
        return float(seconds)
    except OverflowError:
        return math.inf if seconds > 0 else -math.inf
