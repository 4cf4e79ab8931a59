"""What a purgatory tells about itself. Rank 2."""

from __future__ import annotations

from dataclasses import dataclass

from aiowheel.timer._statistics import Histogram


@dataclass(frozen=True, slots=True)
class PurgatoryStatistics:
    """A snapshot of one purgatory.

    Attributes:
        pending: Operations that wait.
        watched: Links between an operation and a key; with lazy purging also those of operations
            that are over and have not been purged.
        keys: Keys with at least one link.
        completed: Operations ever completed by their condition or by force.
        expired: Operations ever expired.
        cancelled: Operations ever cancelled.
        failed: Operations that raised.
        checks: Times any operation was asked whether it can complete.
        estimated_total: The estimate E of operations in the watch lists, pending or over.
        purges: Times the watch lists were purged.
        lateness: Expired minus deadline, a histogram in seconds.
        durations: Completed minus created, a histogram in seconds.
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
