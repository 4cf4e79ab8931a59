"""Counts of a timer and its purgatories for each of the last seconds. Rank 4.

A point holds the counts of one second, so that points of several processes can be added. The second
is an integer of the loop's clock, which all processes of a host share.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, cast

from aiowheel.dashboard._waiting import Json
from aiowheel.errors import TimerClosedError
from aiowheel.purgatory import Purgatory
from aiowheel.timer import Histogram, Timer

if TYPE_CHECKING:
    from aiowheel.durable import DurableStatistics, DurableTimers

SECONDS: Final = 300  #: number of points that are kept
POINTS: Final = 5  #: number of points in a snapshot, so that a slow viewer misses none
_FIRES: Final = ("fired", "acknowledged", "retried", "dead")
_ENDS: Final = ("completed", "expired", "cancelled", "failed")


class Increments:
    """Computes the increments of running counts, and of a histogram, since the last call.

    Args:
        names: Attributes of the running counts.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._counted = dict.fromkeys(names, 0)
        self._durations: dict[float, int] = {}

    def of_counts(self, counts: object) -> dict[str, int]:
        """Return the increment of each count since the last call."""
        now = {name: int(getattr(counts, name)) for name in self._names}
        before, self._counted = self._counted, now
        return {name: now[name] - before[name] for name in self._names}

    def of_durations(self, histogram: Histogram) -> list[tuple[float, int]]:
        """Return the buckets that grew: upper edge in seconds, and number of new durations."""
        now = dict(histogram.buckets())
        before, self._durations = self._durations, now
        return [
            (edge, count - before.get(edge, 0))
            for edge, count in now.items()
            if count > before.get(edge, 0)
        ]


class History:
    """The points of the last five minutes, one per second.

    Args:
        timer: An open timer.
        purgatories: Purgatories, by the name to show.
        durable: Durable timers, by the name to show.
    """

    def __init__(
        self,
        timer: Timer,
        purgatories: Mapping[str, Purgatory],
        durable: Mapping[str, DurableTimers],
    ) -> None:
        self._timer = timer
        self._purgatories = {
            name: (purgatory, Increments(_ENDS)) for name, purgatory in purgatories.items()
        }
        self._durable = {name: (timers, Increments(_FIRES)) for name, timers in durable.items()}
        self._driver_counts = Increments(("fired", "wakeups"))
        self._wheel_counts = Increments(("cancelled", "cascaded"))
        self._points: deque[Json] = deque(maxlen=SECONDS)
        self._next: asyncio.TimerHandle | None = None
        self._point(0)  # sets the start of all increments

    def last(self, count: int = SECONDS) -> list[Json]:
        """Return the last *count* points, oldest first."""
        return list(self._points)[-count:]

    def start(self) -> None:
        """Take a point at every full second of the running loop, until the timer is closed."""
        if self._next is None:
            self._take_next(asyncio.get_running_loop(), weakref.ref(self))

    def stop(self) -> None:
        """Stop taking points. Idempotent."""
        if self._next is not None:
            self._next.cancel()

    @staticmethod
    def _take_next(loop: asyncio.AbstractEventLoop, reference: weakref.ref[History]) -> None:
        # A weak reference: a dashboard that is dropped without `close` must be freed.
        history = reference()
        if history is None:
            return
        now = loop.time()
        if history._next is not None:
            try:
                history.take(round(now) - 1)
            except TimerClosedError:
                return
        history._next = loop.call_at(int(now + 1.5), History._take_next, loop, reference)

    def take(self, second: int) -> None:
        """Add the point of *second*, which has just ended.

        Raises:
            TimerClosedError: The timer is closed.
        """
        self._points.append(self._point(second))

    def _point(self, second: int) -> Json:
        driver = self._timer.open_driver()
        return {
            "second": second,
            "pending": int(driver.counts.pending),
            **self._wheel_counts.of_counts(driver.counts),
            **self._driver_counts.of_counts(driver),
            "late": self._driver_counts.of_durations(driver.lateness),
            "purgatories": {
                name: {
                    "pending": len(purgatory),
                    **increments.of_counts(purgatory.counts),
                    "took": increments.of_durations(purgatory.counts.durations),
                }
                for name, (purgatory, increments) in self._purgatories.items()
            },
            "durable": {
                name: _fires(timers.statistics(), increments)
                for name, (timers, increments) in self._durable.items()
            },
        }


def _fires(statistics: DurableStatistics, increments: Increments) -> Json:
    return {
        **increments.of_counts(statistics),
        "late": increments.of_durations(statistics.lateness),
    }


def summed(points: Sequence[Json]) -> Json:
    """Return the sum of points of the same second; buckets and named parts are added one by one."""
    return {**reduce(_sum, points), "second": points[0]["second"]}


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        names = cast("Json", {**one, **other})
        return {
            name: _sum(one[name], other[name]) if name in one and name in other else value
            for name, value in names.items()
        }
    if isinstance(one, list):
        sums = dict(cast("list[tuple[float, int]]", one))
        for edge, count in other:
            sums[edge] = sums.get(edge, 0) + count
        return sorted(sums.items())
    return one + other
