"""What a timer and its purgatories did in each of the last seconds. Rank 4.

A point is what happened in one second, so points of several processes can be added. Its second is a
whole number of the loop's clock, which all processes of a host share.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from aiowheel.dashboard._waiting import Json
from aiowheel.errors import TimerClosedError
from aiowheel.purgatory import Purgatory
from aiowheel.timer import Histogram, Timer

SECONDS: Final = 300  #: that are kept
_TIMER_COUNTS: Final = ("fired", "cancelled", "wakeups", "cascaded")
_ENDS: Final = ("completed", "expired", "cancelled", "failed")


class Growth:
    """What a histogram has gained since the last look."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._before = dict(histogram.buckets())

    def take(self) -> list[tuple[float, int]]:
        """Return the upper edge in seconds and the new durations of each bucket that has some."""
        now = dict(self._histogram.buckets())
        before, self._before = self._before, now
        return [
            (edge, count - before.get(edge, 0))
            for edge, count in now.items()
            if count > before.get(edge, 0)
        ]


class History:
    """Points of the last five minutes, one a second.

    Args:
        timer: Open.
        purgatories: By the name to show.
    """

    def __init__(self, timer: Timer, purgatories: Mapping[str, Purgatory]) -> None:
        self._timer = timer
        self._purgatories = purgatories
        driver = timer.open_driver()
        self._lateness = Growth(driver.lateness)
        self._durations = {
            name: Growth(purgatory.counts.durations) for name, purgatory in purgatories.items()
        }
        self._counts = self._read()
        self._points: deque[Json] = deque(maxlen=SECONDS)
        self._next: asyncio.TimerHandle | None = None

    def last(self, count: int = SECONDS) -> list[Json]:
        """Return the last points, oldest first."""
        return list(self._points)[-count:]

    def start(self) -> None:
        """Take a point at every full second of the running loop, until the timer is closed."""
        if self._next is None:
            self._again(asyncio.get_running_loop(), weakref.ref(self))

    def stop(self) -> None:
        """Take no more points; idempotent."""
        if self._next is not None:
            self._next.cancel()

    @staticmethod
    def _again(loop: asyncio.AbstractEventLoop, reference: weakref.ref[History]) -> None:
        # A weak reference: a dashboard that is dropped without `close` must not live on.
        history = reference()
        if history is None:
            return
        now = loop.time()
        if history._next is not None:
            try:
                history.take(round(now) - 1)
            except TimerClosedError:
                return
        history._next = loop.call_at(int(now + 1.5), History._again, loop, reference)

    def take(self, second: int) -> None:
        """Add the point of *second*, which has just ended.

        Raises:
            TimerClosedError: The timer is closed.
        """
        timer = self._timer.open_driver()
        before, self._counts = self._counts, self._read()
        growth = {place: count - before.get(place, 0) for place, count in self._counts.items()}
        self._points.append(
            {
                "second": second,
                "pending": timer.counts.pending,
                **{name: growth["", name] for name in _TIMER_COUNTS},
                "late": self._lateness.take(),
                "purgatories": {
                    name: {
                        "pending": len(purgatory),
                        **{end: growth[name, end] for end in _ENDS},
                        "took": self._durations[name].take(),
                    }
                    for name, purgatory in self._purgatories.items()
                },
            }
        )

    def _read(self) -> dict[tuple[str, str], int]:
        """Return the running counts, of the timer and by purgatory."""
        driver = self._timer.open_driver()
        read = {
            ("", "fired"): int(driver.fired),
            ("", "cancelled"): int(driver.counts.cancelled),
            ("", "wakeups"): int(driver.wakeups),
            ("", "cascaded"): int(driver.counts.cascaded),
        }
        for name, purgatory in self._purgatories.items():
            for end in _ENDS:
                read[name, end] = int(getattr(purgatory.counts, end))
        return read


def added(points: Iterable[Json]) -> Json:
    """Return the sum of points of the same second."""
    first, *others = points
    total = {**first, "purgatories": dict(first["purgatories"])}
    for point in others:
        for name in ("pending", *_TIMER_COUNTS):
            total[name] += point[name]
        total["late"] = _buckets(total["late"], point["late"])
        for name, purgatory in point["purgatories"].items():
            known = total["purgatories"].get(name)
            total["purgatories"][name] = (
                purgatory if known is None else _added_purgatories(known, purgatory)
            )
    return total


def _added_purgatories(one: Json, other: Json) -> Json:
    sums: Json = {name: one[name] + other[name] for name in ("pending", *_ENDS)}
    return {**sums, "took": _buckets(one["took"], other["took"])}


def _buckets(
    one: Iterable[tuple[float, int]], other: Iterable[tuple[float, int]]
) -> list[tuple[float, int]]:
    sums = dict(one)
    for edge, count in other:
        sums[edge] = sums.get(edge, 0) + count
    return sorted(sums.items())
