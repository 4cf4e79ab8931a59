"""How operations ended, counted. Rank 2."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from aiowheel.purgatory._operation import Operation
from aiowheel.purgatory._outcome import Outcome
from aiowheel.timer._statistics import Histogram

_COMPLETED: Final = Outcome.COMPLETED
_EXPIRED: Final = Outcome.EXPIRED
_CANCELLED: Final = Outcome.CANCELLED


class Ledger:
    """The counts behind `PurgatoryStatistics`; fixed memory, O(1) an operation."""

    __slots__ = ("cancelled", "checks", "completed", "durations", "expired", "failed", "lateness")

    def __init__(self) -> None:
        self.checks: i64 = 0
        self.completed: i64 = 0
        self.expired: i64 = 0
        self.cancelled: i64 = 0
        self.failed: i64 = 0
        self.lateness = Histogram()
        self.durations = Histogram()

    def record(self, operation: Operation) -> None:
        """Count one that has ended."""
        outcome = operation._outcome
        if outcome is _COMPLETED:
            self.completed += 1
            self.durations.record(operation._finished_ns - operation._created_ns)
        elif outcome is _EXPIRED:
            self.expired += 1
            self.lateness.record(operation._finished_ns - operation._deadline_ns)
        elif outcome is _CANCELLED:
            self.cancelled += 1
        else:
            self.failed += 1
