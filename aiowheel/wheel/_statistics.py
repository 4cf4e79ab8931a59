"""What a wheel tells about itself. Rank 0."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WheelStatistics:
    """A snapshot of one wheel.

    Attributes:
        pending: Entries that wait.
        levels: Rings in use, the finest included.
        occupied_buckets: Buckets with an entry in them, over all levels.
        scheduled: Entries ever made or re-armed.
        rescheduled: Deadlines ever moved.
        cancelled: Entries ever cancelled, those dropped by ``clear`` included.
        expired: Entries ever returned as due.
        cascaded: Times an entry was filed again: into a finer level, or behind a later deadline.
    """

    pending: int
    levels: int
    occupied_buckets: int
    scheduled: int
    rescheduled: int
    cancelled: int
    expired: int
    cascaded: int
