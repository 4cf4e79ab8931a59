"""The driver on an event loop: one armed loop timer at most. Rank 1."""

from __future__ import annotations

from asyncio import AbstractEventLoop, BaseEventLoop
from collections.abc import Callable
from contextvars import Context
from time import monotonic
from typing import Any, Final

from mypy_extensions import i64

from aiowheel._units import FOREVER, ns_to_alarm
from aiowheel.timer._alarm import Alarm
from aiowheel.timer._driver import Driver

_MILLISECOND: Final = 1_000_000
#: A second loop that this thread starts within that time is noticed late; it does no harm, for
#: only one loop of a thread runs at a time.
_VERIFIED_FOR_NS: Final = 100_000
#: select() caps its wait at a day; coming back daily also notices a machine that was suspended.
_LONGEST_SLEEP_NS: Final = 86_400_000_000_000


class LoopDriver(Driver):
    """Sleeps in `loop.call_at`, re-armed only for an earlier deadline.

    `ring` is what the loop calls when the alarm goes off: `run_slice` itself, or the `set` of
    whatever a driver task waits for.

    Args:
        loop: Where slices run.
        tick_ns: Width of a bucket.
        wheel_size: Buckets a level.
        call_at: The loop's own `call_at`, for a loop that overrides it with this driver's wheel.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        tick_ns: int,
        wheel_size: int,
        call_at: Callable[..., object] | None = None,
    ) -> None:
        time = type(loop).time
        counts_milliseconds = getattr(time, "__module__", "") == "uvloop.loop"
        # Both loops' own `time` is the monotonic clock; uvloop's is cut to milliseconds, and a
        # delay counted from a cut "now" ends early.
        reads_monotonic = counts_milliseconds or time is BaseEventLoop.time
        super().__init__(monotonic if reads_monotonic else loop.time, tick_ns, wheel_size)
        self.verified_for_ns = _VERIFIED_FOR_NS if reads_monotonic else 0
        self.loop = self.own_loop = loop
        self.ring: Callable[[], object] = self.run_slice
        self._grain_ns: i64 = _MILLISECOND if counts_milliseconds else 1
        # Any: compiled code would hold a loop's handle to the letter of asyncio's, whose cancel()
        # returns None; a wheel loop's own returns a bool.
        self._call_at: Callable[..., Any] = loop.call_at if call_at is None else call_at
        self._handle: Any = None
        # Not the context of whoever happened to arm the earliest deadline: that one would live
        # as long as the alarm, and each alarm would hand it on to the next.
        self._context = Context()

    def wake_at(self, due_ns: i64) -> None:
        self._cancel()
        self._armed_ns = FOREVER  # until an alarm stands: Ctrl-C may come before
        now = self.now_ns()
        if due_ns <= now and self._grain_ns > 1:  # uvloop's own way with a delay of 0
            self._handle = self.own_loop.call_soon(self.ring, context=self._context)
        else:
            alarm_ns = min(due_ns, now + _LONGEST_SLEEP_NS)
            # uvloop rounds a delay to the nearest millisecond: give it whole ones, not before due.
            alarm_ns = -(-alarm_ns // self._grain_ns) * self._grain_ns
            self._handle = self._call_at(ns_to_alarm(alarm_ns), self.ring, context=self._context)
        self._armed_ns = due_ns

    def wake_again(self) -> None:
        self._cancel()
        self._handle = self.own_loop.call_soon(self.ring, context=self._context)

    def run_slice(self) -> None:
        self._cancel()
        super().run_slice()

    def report(self, context: dict[str, object]) -> None:
        self.own_loop.call_exception_handler(context)

    def close(self) -> list[Alarm]:
        self._cancel()
        return super().close()

    def _cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
