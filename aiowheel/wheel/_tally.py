"""The counts of one wheel. Rank 0: no clock, no loop."""

from __future__ import annotations

from mypy_extensions import i64


class Tally:
    """What happened to the entries of one wheel since its birth.

    Every pending entry points at its wheel's tally and at nothing else of the wheel: an entry that
    outlives its wheel keeps these few integers alive, not a million neighbours.
    """

    __slots__ = ("cancelled", "cascaded", "expired", "pending", "rescheduled", "scheduled")

    def __init__(self) -> None:
        self.pending: i64 = 0
        self.scheduled: i64 = 0
        self.cancelled: i64 = 0
        self.expired: i64 = 0
        self.rescheduled: i64 = 0
        self.cascaded: i64 = 0
