"""How late, how long: a histogram of fixed size. Rank 1.

Source: the log-linear buckets of HdrHistogram, 16 to an octave: a quantile is at most 6.25 % above
the true value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64

_STEPS: Final = 16  # linear buckets an octave
_SHIFT: Final = 4
_FULL: Final = 2**61
_BUCKETS: Final = _STEPS * 59  # up to 2**62 ns


class Histogram:
    """Counts durations in nanoseconds; O(1) to record, about 8 kB whatever the number."""

    __slots__ = ("_carried", "_count", "_counts", "_maximum_ns", "_total")

    def __init__(self) -> None:
        self._counts: list[int] = [0] * _BUCKETS
        self._total: i64 = 0
        self._carried: int = 0  # what would not fit 64 bits: from 73 years in all
        self._count: i64 = 0
        self._maximum_ns: i64 = 0

    def record(self, ns: i64) -> None:
        """Count one duration; a negative one counts as 0."""
        if ns < 0:
            ns = 0
        self._count += 1
        self._total += ns
        if self._total >= _FULL:
            self._carried += int(self._total)  # i64 would swallow the sum
            self._total = 0
        self._maximum_ns = max(ns, self._maximum_ns)
        shift: i64 = 0
        rest = ns
        while rest >= 2 * _STEPS:
            rest >>= 1
            shift += 1
        # Below 32 ns a bucket is one nanosecond wide; from there each octave has 16.
        index = rest if shift == 0 else (shift << _SHIFT) + rest
        self._counts[index] += 1

    @property
    def count(self) -> int:
        """How many durations were recorded."""
        return self._count

    @property
    def maximum_ns(self) -> int:
        """The longest duration recorded, in nanoseconds."""
        return self._maximum_ns

    @property
    def maximum(self) -> float:
        """The longest duration recorded, in seconds; 0.0 when none was."""
        return int(self._maximum_ns) / 1e9

    @property
    def total(self) -> float:
        """The sum of all durations in seconds; it never shrinks."""
        return (self._carried + int(self._total)) / 1e9

    @property
    def mean(self) -> float:
        """The mean duration in seconds; 0.0 when none was recorded."""
        return self.total / int(self._count) if self._count else 0.0

    def quantile(self, q: float) -> float:
        """The duration in seconds that a share *q* of all does not exceed; 0.0 when empty.

        Args:
            q: From 0 to 1; 0.5 is the median. At most 6.25 % above the true value.

        Raises:
            ValueError: *q* is out of range.
        """
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"q must be from 0 to 1, got {q}")
        wanted = q * int(self._count)
        seen = 0
        for upper, count in self.buckets():
            seen += count
            if seen >= wanted:
                return min(upper, self.maximum)
        return self.maximum

    def buckets(self) -> Iterator[tuple[float, int]]:
        """Upper edge in seconds and count of every bucket in use, shortest first."""
        for index, count in enumerate(self._counts):
            if count:
                yield _upper_ns(index) / 1e9, count

    def copy(self) -> Histogram:
        """A snapshot that no longer changes."""
        twin = Histogram()
        twin._counts = list(self._counts)
        twin._total = self._total
        twin._carried = self._carried
        twin._count = self._count
        twin._maximum_ns = self._maximum_ns
        return twin

    def __repr__(self) -> str:
        return (
            f"<Histogram count={self._count} p50={self.quantile(0.5):.6f} "
            f"p99={self.quantile(0.99):.6f} max={self.maximum:.6f}>"
        )


def _upper_ns(index: int) -> int:
    """The longest duration that falls into bucket *index*."""
    if index < 2 * _STEPS:
        return index
    shift = (index >> _SHIFT) - 1
    return ((index - (shift << _SHIFT) + 1) << shift) - 1
