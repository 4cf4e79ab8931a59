"""Periodic calls, and the schedule of their ticks. Rank 1.

Source: tokio's Interval; the three rules for missed ticks are its MissedTickBehavior.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from typing import Final, cast

from mypy_extensions import i64

from aiowheel._arguments import checked_bool, checked_choice, safe_repr
from aiowheel._callbacks import called_or_awaited
from aiowheel._types import Switch
from aiowheel._units import checked_span, delay_to_ns, ns_to_seconds
from aiowheel.timer._driver import Driver, TimerTask
from aiowheel.timer._periodic_tasks import PeriodicTasks

_BURST: Final = 0
_DELAY: Final = 1
_SKIP: Final = 2
_WAYS: Final = {"skip": _SKIP, "burst": _BURST, "delay": _DELAY}
#: A tick that is late by at most this is in time, as in tokio, so that "delay" does not drift.
_TOLERANCE_NS: Final = 5_000_000


class Schedule:
    """The ticks of a repeated call: multiples of a period, and the rule for missed ones.

    The arguments are those of `Timer.every`.

    Attributes:
        next_ns: When the next tick is due, with its jitter.
    """

    __slots__ = ("_grid", "_jitter", "_missed", "_period", "_tolerance", "next_ns")

    def __init__(
        self, driver: Driver, period: object, missed: object, jitter: object, first: object
    ) -> None:
        self._period: i64 = checked_span("period", period, 1)
        self._jitter: i64 = delay_to_ns("jitter", jitter)
        if not 0 <= self._jitter <= self._period:
            raise ValueError(
                f"jitter must be from 0 to the period {safe_repr(period)}, got {safe_repr(jitter)}"
            )
        first_ns = self._period if first is None else checked_span("first", first, 0)
        self._missed: i64 = _WAYS[checked_choice("missed", missed, _WAYS)]
        self._tolerance: i64 = max(_TOLERANCE_NS, driver.wheel.tick)
        self._set_next(driver.deadline_after(first_ns))

    def advance(self, now: i64) -> None:
        """Set the next tick after one that fires at the time *now*."""
        late = max(now - self.next_ns, 0)
        grid = self._grid + self._period
        if self._missed == _SKIP:
            grid += late // self._period * self._period
            if grid <= now and late > self._tolerance:  # *late* lacks the jitter
                grid += self._period
        elif self._missed == _DELAY and late > self._tolerance:
            grid = now + self._period
        self._set_next(grid)

    def _set_next(self, grid: i64) -> None:
        self._grid: i64 = grid  # the tick without its jitter
        self.next_ns: i64 = grid
        if self._jitter:
            from random import random  # takes 2 ms to import, and only jitter needs it

            self.next_ns += int(int(self._jitter) * random())  # noqa: S311 - jitter is no secret


# Not acyclic: while its coroutine runs, a call is in no wheel, and no wheel reports its references
# to the collector (see `Node`).
class Periodic(TimerTask):
    """A function that is called periodically; `Timer.every` creates it.

    Calls never overlap: the next tick waits until the function, or the coroutine it returned, has
    ended. After an exception, which is reported, the schedule continues.

    Attributes:
        runs: The number of calls so far.
    """

    __slots__ = ("_args", "_context", "_driver", "_schedule", "_stopped", "_tasks", "runs")

    def __init__(
        self,
        driver: Driver,
        tasks: PeriodicTasks,
        schedule: Schedule,
        function: object,
        args: tuple[object, ...],
    ) -> None:
        super().__init__(schedule.next_ns, called_or_awaited("fn", function))
        self._driver = driver
        self._tasks = tasks
        self._schedule = schedule
        self._args = args
        self._context: Context | None = copy_context()
        self._stopped = False
        self.runs: int = 0

    def cancel(self, *, running: Switch = False) -> bool:
        """Stop the calls; return True exactly once.

        Args:
            running: Whether to cancel the coroutine of the current call as well. Otherwise it runs
                to its end.

        Raises:
            ForeignLoopError: The timer's loop runs in another thread.

        Cost: O(1).
        """
        cancels_running = checked_bool("running", running)
        driver = self._driver
        driver.check_thread()
        if cancels_running:
            self._tasks.cancel(self)
        if self._stopped:
            return False
        super().cancel()
        self.drop()
        return True

    def cancelled(self) -> bool:
        """Return whether the calls have stopped, by `cancel` or by closing the timer."""
        return self._stopped

    def get_context(self) -> Context | None:
        """Return the context of the calls; None if they have stopped."""
        return self._context

    def next_when(self) -> float | None:
        """Return when the next call is due, on the scale of `timer.time()`; None if cancelled.

        While a call runs, that time may have passed; the next call then follows at once.
        """
        return None if self._stopped else ns_to_seconds(self._deadline)

    def arm(self) -> None:
        """Arm the next tick, unless the schedule has ended."""
        driver = self._driver
        if driver.closed:
            self.drop()
        elif not self._stopped:
            driver.arm(self, driver.now_ns())

    def fire(self) -> None:
        schedule = self._schedule
        schedule.advance(self._driver.now_ns())
        self._deadline = schedule.next_ns
        self.runs += 1
        awaited = False
        function = cast(Callable[..., object], self._payload)
        context = cast(Context, self._context)
        try:
            result = context.run(function, *self._args)
            if hasattr(result, "__await__"):
                self._tasks.start(self, cast("Awaitable[object]", result), context)
                awaited = True
        except BaseException:
            self._context = context  # the function may have cancelled the calls
            raise
        finally:
            if not awaited:
                self.arm()

    def forget(self) -> None:
        if self._stopped:
            self._context = None

    def ended(self, error: BaseException | None) -> None:
        """Continue the schedule after the coroutine of a tick has ended."""
        if error is not None:
            self._driver.callback_errors += 1
            name = "that was cancelled" if self._payload is None else safe_repr(self._payload)
            self._driver.report(
                {
                    "message": f"Exception in periodic call {name}",
                    "exception": error,
                    "handle": self,
                }
            )
        self.arm()

    def drop(self) -> None:
        self._stopped = True
        self._payload = None
        self._args = ()
        self._context = None

    def __repr__(self) -> str:
        if self._stopped:
            return f"<Periodic cancelled runs={self.runs}>"
        name = getattr(self._payload, "__qualname__", None) or safe_repr(self._payload)
        return f"<Periodic {name} next={self.next_when()} runs={self.runs}>"
