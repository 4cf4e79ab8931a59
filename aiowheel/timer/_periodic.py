"""A call that repeats. Rank 1.

Source: tokio's Interval; the three ways to make up for missed ticks are its MissedTickBehavior.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from random import random
from typing import Final, cast

from mypy_extensions import i64

from aiowheel._units import FOREVER, delay_to_ns, ns_to_seconds
from aiowheel.timer._alarm import Alarm
from aiowheel.timer._driver import Driver, named
from aiowheel.timer._jobs import Jobs

_BURST: Final = 0
_DELAY: Final = 1
_SKIP: Final = 2
_WAYS: Final = {"burst": _BURST, "delay": _DELAY, "skip": _SKIP}
#: tokio's: up to here a tick counts as being in time, so that "delay" does not drift by itself.
_TOLERANCE_NS: Final = 5_000_000


# Not acyclic: while its coroutine runs it is in no wheel, and only a wheel shows the collector
# what an acyclic entry refers to.
class Periodic(Alarm):
    """A function that is called again and again; made by `Timer.every`.

    Never overlaps itself: the next tick waits until the function, or the coroutine it returned,
    has ended. What it raises is reported, and the schedule goes on.

    Attributes:
        runs: How often the function was called.
    """

    __slots__ = (
        "_args",
        "_context",
        "_driver",
        "_grid",
        "_jitter",
        "_jobs",
        "_missed",
        "_period",
        "_stopped",
        "runs",
    )

    def __init__(
        self, driver: Driver, jobs: Jobs, function: object, args: tuple[object, ...]
    ) -> None:
        super().__init__(0, function)
        if not callable(function):
            raise TypeError(f"fn must be callable, got {function!r}")
        self._driver = driver
        self._jobs = jobs
        self._args = args
        self._context: Context | None = copy_context()
        self._period: i64 = 0
        self._jitter: i64 = 0
        self._missed: i64 = _SKIP
        self._grid: i64 = 0  # the next tick without its jitter
        self._stopped = False
        self.runs = 0

    def begin(self, period: object, missed: str, jitter: object, first: object) -> None:
        """Check the schedule and arm the first tick; see `Timer.every`."""
        self._period = delay_to_ns("period", period)
        if not 0 < self._period < FOREVER:
            raise ValueError(f"period must be more than 0 and finite, got {period!r}")
        self._jitter = delay_to_ns("jitter", jitter)
        if not 0 <= self._jitter <= self._period:
            raise ValueError(f"jitter must be from 0 to the period {period!r}, got {jitter!r}")
        first_ns = self._period if first is None else delay_to_ns("first", first)
        if not 0 <= first_ns < FOREVER:
            raise ValueError(f"first must be at least 0 and finite, got {first!r}")
        way = _WAYS.get(missed)
        if way is None:
            raise ValueError(f"missed must be one of {', '.join(_WAYS)}, got {missed!r}")
        self._missed = way
        self._set_next(self._driver.deadline_after(first_ns))
        self.arm()

    def cancel(self) -> bool:
        """Make no further call; True exactly once. A call under way goes on to its end. O(1)."""
        if self._stopped:
            return False
        super().cancel()
        self.drop()
        return True

    def cancelled(self) -> bool:
        """Whether no further call will be made: cancelled, or the timer was closed."""
        return self._stopped

    def next_when(self) -> float | None:
        """When the next call is due, on the scale of `timer.time()`; None when cancelled.

        While a call is under way this may already have passed: it is then due when that one ends.
        """
        return None if self._stopped else ns_to_seconds(self._deadline)

    def arm(self) -> None:
        """Wait for the next tick, if there is to be one."""
        driver = self._driver
        if driver.closed:
            self.drop()
        elif not self._stopped:
            driver.arm(self, driver.now_ns())

    def fire(self) -> None:
        self._advance(self._driver.now_ns())
        self.runs += 1
        awaited = False
        try:
            function = cast(Callable[..., object], self._payload)
            context = cast(Context, self._context)
            result = context.run(function, *self._args)
            if hasattr(result, "__await__"):
                self._jobs.start(self, cast("Awaitable[object]", result), context)
                awaited = True
        finally:
            if not awaited:
                self.arm()

    def _advance(self, now: i64) -> None:
        """Set the tick after the one that fires now."""
        driver = self._driver
        late = max(now - self._deadline, 0)
        grid = self._grid + self._period
        if self._missed == _SKIP:
            grid += late // self._period * self._period
        elif self._missed == _DELAY and late > max(_TOLERANCE_NS, driver.wheel._tick):
            grid += late
        self._set_next(grid)

    def _set_next(self, grid: i64) -> None:
        self._grid = grid
        self._deadline = grid
        if self._jitter:
            self._deadline += int(int(self._jitter) * random())  # noqa: S311 - to spread, no secret

    def ended(self, error: BaseException | None) -> None:
        """The coroutine of this tick is done."""
        if error is not None:
            self._driver.callback_errors += 1
            self._driver.report(
                {
                    "message": f"Exception in periodic call {named(self._payload)}",
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
        name = getattr(self._payload, "__qualname__", None) or named(self._payload)
        return f"<Periodic {name} next={self.next_when()} runs={self.runs}>"
