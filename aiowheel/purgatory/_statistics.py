"""The statistics of a purgatory: running counts, and snapshots of them. Rank 2."""

from typing import Final, NamedTuple

from mypy_extensions import i64

from aiowheel.purgatory._operation import Operation, Outcome
from aiowheel.timer._statistics import Histogram

_COMPLETED: Final = Outcome.COMPLETED
_EXPIRED: Final = Outcome.EXPIRED
_CANCELLED: Final = Outcome.CANCELLED


class PurgatoryStatistics(NamedTuple):
    """A snapshot of one purgatory.

    Attributes:
        pending: Pending operations.
        watched: Links between an operation and a key; with lazy purging this includes links of
            ended operations that have not been purged.
        keys: Keys with at least one link.
        completed: Operations completed by their condition or by force.
        expired: Operations that expired.
        cancelled: Operations that were cancelled.
        failed: Operations that raised.
        checks: Calls of any operation's `try_complete`.
        estimated_total: The estimated number of operations in the watch lists, pending or ended;
            operations of `wait_until` are in no watch list.
        purges: Purges of the watch lists.
        lateness: Time of expiration minus deadline, a histogram in seconds; without the operations
            that closing ended before their deadline.
        durations: Time of completion minus time of creation, a histogram in seconds.
    """

    pending: int
    watched: int
    keys: int
    completed: int
    expired: int
    cancelled: int
    failed: int
    checks: int
    estimated_total: int
    purges: int
    lateness: Histogram
    durations: Histogram


class RunningCounts:
    """The counts of a purgatory since its creation; fixed memory, O(1) for each operation."""

    __slots__ = (
        "cancelled",
        "checks",
        "completed",
        "durations",
        "expired",
        "failed",
        "lateness",
        "purges",
    )

    def __init__(self) -> None:
        self.checks: i64 = 0
        self.completed: i64 = 0
        self.expired: i64 = 0
        self.cancelled: i64 = 0
        self.failed: i64 = 0
        self.purges: i64 = 0
        self.lateness: Histogram = Histogram()
        self.durations: Histogram = Histogram()

    def record(self, operation: Operation) -> None:
        """Count *operation*, which has ended."""
        outcome = operation._outcome
        if outcome is _COMPLETED:
            self.completed += 1
            self.durations.record(operation.finished_ns - operation.created_ns)
        elif outcome is _EXPIRED:
            self.expired += 1
            if operation.finished_ns >= operation.deadline_ns:  # else closing has ended it
                self.lateness.record(operation.finished_ns - operation.deadline_ns)
        elif outcome is _CANCELLED:
            self.cancelled += 1
        else:
            self.failed += 1
