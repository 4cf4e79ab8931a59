"""The counts of a wheel, and the snapshots made of them. Rank 0: no clock, no loop."""

from typing import NamedTuple

from mypy_extensions import i64


class Counts:
    """The running counts of one wheel.

    Every pending entry refers to its wheel's counts and to no other part of the wheel. An entry
    that outlives its wheel therefore keeps these few integers alive, not a million other entries.
    """

    __slots__ = ("cancelled", "cascaded", "expired", "pending", "rescheduled", "scheduled")

    def __init__(self) -> None:
        self.pending: i64 = 0
        self.scheduled: i64 = 0
        self.cancelled: i64 = 0
        self.expired: i64 = 0
        self.rescheduled: i64 = 0
        self.cascaded: i64 = 0


class WheelStatistics(NamedTuple):
    """A snapshot of one wheel.

    Attributes:
        pending: Entries that are neither cancelled nor expired.
        levels: Rings in use, including the finest.
        occupied_buckets: Buckets with at least one entry, over all levels.
        scheduled: Entries ever created or re-armed.
        rescheduled: Deadlines ever moved.
        cancelled: Entries ever cancelled, including those dropped by `clear`.
        expired: Entries ever returned as due.
        cascaded: Times an entry was filed again: into a finer level, or under a later deadline.
    """

    pending: int
    levels: int
    occupied_buckets: int
    scheduled: int
    rescheduled: int
    cancelled: int
    expired: int
    cascaded: int


class LevelOccupancy(NamedTuple):
    """The number of entries in each bucket of one ring.

    Attributes:
        base: The time at which the first bucket begins, in the wheel's unit.
        width: The time that one bucket covers, in the wheel's unit.
        counts: The number of entries in each bucket, at most the limit given to `occupancy`.
    """

    base: int
    width: int
    counts: bytes
