"""The statistics of a timer: counts, and lateness in a histogram. Rank 1.

Source: the log-linear buckets of HdrHistogram, here 16 in each octave. A quantile is at most 6.25 %
above the true value.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from mypy_extensions import i64

from aiowheel._arguments import safe_repr
from aiowheel._types import Share

_STEPS: Final = 16  # linear buckets in each octave
_SHIFT: Final = 4
_FULL: Final = 2**61
_BUCKETS: Final = _STEPS * 59  # up to 2**62 ns


class Histogram:
    """A histogram of durations: O(1) to record, about 8 kB for any number of them."""

    __slots__ = ("_carried", "_count", "_counts", "_maximum_ns", "_total")

    def __init__(self) -> None:
        self._counts: list[int] = [0] * _BUCKETS
        self._total: i64 = 0
        self._carried: int = 0  # the part of the sum beyond 64 bits
        self._count: i64 = 0
        self._maximum_ns: i64 = 0

    def record(self, ns: i64) -> None:
        """Record one duration in nanoseconds; a negative one counts as 0."""
        if ns < 0:
            ns = 0
        self._count += 1
        self._total += ns
        if self._total >= _FULL:
            self._carried += int(self._total)  # the sum of an int and an i64 would be an i64
            self._total = 0
        self._maximum_ns = max(ns, self._maximum_ns)
        shift: i64 = 0
        rest = ns
        while rest >= 2 * _STEPS:
            rest >>= 1
            shift += 1
        # Below 32 ns, a bucket is one nanosecond wide; above, each octave has 16 buckets.
        index = rest if shift == 0 else (shift << _SHIFT) + rest
        self._counts[index] += 1

    @property
    def count(self) -> int:
        """The number of durations recorded."""
        return self._count

    @property
    def maximum_ns(self) -> int:
        """The longest duration recorded, in nanoseconds."""
        return self._maximum_ns

    @property
    def maximum(self) -> float:
        """The longest duration recorded, in seconds; 0.0 if there is none."""
        return int(self._maximum_ns) / 1e9

    @property
    def total_ns(self) -> int:
        """The sum of all durations in nanoseconds."""
        return self._carried + int(self._total)

    @property
    def total(self) -> float:
        """The sum of all durations in seconds."""
        return self.total_ns / 1e9

    @property
    def mean(self) -> float:
        """The mean duration in seconds; 0.0 if there is none."""
        return self.total / int(self._count) if self._count else 0.0

    def quantile(self, q: Share) -> float:
        """Return the duration in seconds that a share *q* of all does not exceed; 0.0 if empty.

        The result is at most 6.25 % above the true value.

        Args:
            q: From 0 to 1; 0.5 is the median.

        Raises:
            ValueError: *q* is out of range.
            TypeError: *q* is not a number.
        """
        if isinstance(q, bool) or not isinstance(q, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
            raise TypeError(f"q must be a number from 0 to 1, got {safe_repr(q)}")
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"q must be from 0 to 1, got {safe_repr(q)}")
        wanted = q * int(self._count)
        seen = 0
        for upper, count in self.buckets():
            seen += count
            if seen >= wanted:
                return min(upper, self.maximum)
        return self.maximum

    def buckets(self) -> Iterator[tuple[float, int]]:
        """Yield the upper edge in seconds and the count of every bucket in use, shortest first."""
        for index, count in enumerate(self._counts):
            if count:
                yield _upper_ns(index) / 1e9, count

    def copy(self) -> "Histogram":
        """Return a copy, which later records do not change."""
        snapshot = Histogram()
        snapshot._counts = list(self._counts)
        snapshot._total = self._total
        snapshot._carried = self._carried
        snapshot._count = self._count
        snapshot._maximum_ns = self._maximum_ns
        return snapshot

    def __repr__(self) -> str:
        return (
            f"<Histogram count={self._count} p50={self.quantile(0.5):.6f} "
            f"p99={self.quantile(0.99):.6f} max={self.maximum:.6f}>"
        )


def _upper_ns(index: int) -> int:
    """Return the longest duration that falls into bucket *index*."""
    if index < 2 * _STEPS:
        return index
    shift = (index >> _SHIFT) - 1
    return ((index - (shift << _SHIFT) + 1) << shift) - 1


class TimerStatistics(NamedTuple):
    """A snapshot of one timer.

    Attributes:
        pending: Deadlines neither fired nor cancelled.
        scheduled: Deadlines ever armed.
        fired: Deadlines ever fired.
        cancelled: Deadlines ever cancelled, including those dropped by closing.
        rescheduled: Deadlines ever moved.
        wakeups: Times the driver woke up.
        cascaded: Times a deadline was filed again: into a finer level, or after a move.
        callback_errors: Callbacks that raised.
        lateness: Time of firing minus deadline, a histogram in seconds.
    """

    pending: int
    scheduled: int
    fired: int
    cancelled: int
    rescheduled: int
    wakeups: int
    cascaded: int
    callback_errors: int
    lateness: Histogram
