"""One wheel under a load, in virtual time: what it had to do. Rank 5; compiled; no Spark.

Source: the wheel is `aiowheel.wheel`, turned as the timer's driver turns it. At one instant the
order is that of `aiowheel.rules`: timeouts that are due, then what is created, then what completes.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from aiowheel.timer._statistics import Histogram
from aiowheel.wheel._bucket import TimerEntry
from aiowheel.wheel._statistics import Counts
from aiowheel.wheel._wheel import LIMIT, TimingWheel

#: Later than any time a wheel takes; nanoseconds, as every time here.
NEVER: Final = 2**62


class WheelRun:
    """Turns one wheel through arrivals and completions, and counts.

    Args:
        tick: Width of a bucket in nanoseconds, at least 1.
        wheel_size: Buckets a level, at least 2.

    Attributes:
        completed: Operations that completed before they expired.
        expired: Operations that did not.
        wake_ups: Instants at which the wheel had something to do.
        peak_pending: The most operations that were pending at one time.
        lateness: Expiry minus deadline of every expired operation.
    """

    __slots__ = (
        "_counts",
        "_due",
        "_entries",
        "_wheel",
        "completed",
        "expired",
        "lateness",
        "peak_pending",
        "wake_ups",
    )

    def __init__(self, tick: int, wheel_size: int) -> None:
        self._counts = Counts()
        self._wheel = TimingWheel(tick, wheel_size, counts=self._counts)
        self._due: i64 = NEVER  # nothing is due before; cancelling leaves it too early
        self._entries: list[TimerEntry] = []  # those whose end is still to come
        self.completed: i64 = 0
        self.expired: i64 = 0
        self.wake_ups: i64 = 0
        self.peak_pending: i64 = 0
        self.lateness = Histogram()

    @property
    def cascaded(self) -> int:
        """How often an entry moved to a finer level."""
        return self._counts.cascaded

    @property
    def inserts(self) -> int:
        """How often an entry was hung in a bucket."""
        return self._counts.scheduled + self._counts.cascaded

    @property
    def late_sum(self) -> int:
        """The sum of all lateness, in nanoseconds."""
        return self.lateness.total_ns

    @property
    def levels(self) -> int:
        """Rings in use."""
        return self._wheel.statistics().levels

    def feed(
        self,
        created: list[int],
        deadlines: list[int],
        ends: list[int],
        owners: list[int],
        until: i64,
    ) -> int:
        """Work off all arrivals, and the completions before *until*.

        Args:
            created: When operations arrive, ascending and none before what was fed already.
            deadlines: Their deadlines.
            ends: When conditions are met, ascending.
            owners: For every end the place of its operation: among those kept from the last call,
                then among *created*.
            until: At least the last of *created*.

        Returns:
            How many of *ends* are worked off; `keep` must be given the others.

        Cost: some 0.3 us an operation.
        """
        entries = self._entries
        arrived: i64 = 0
        arrivals: i64 = len(created)
        ended: i64 = 0
        last: i64 = len(ends)
        arrival: i64 = created[0] if arrivals else NEVER
        end: i64 = ends[0] if last else NEVER
        while arrived < arrivals or (ended < last and end < until):
            if arrival <= end:
                if arrival >= self._due:
                    self._turn(arrival)
                entries.append(self._arm(arrival, deadlines[arrived]))
                arrived += 1
                arrival = created[arrived] if arrived < arrivals else NEVER
            else:
                if end >= self._due:
                    self._turn(end)
                if entries[owners[ended]].cancel():
                    self.completed += 1
                ended += 1
                end = ends[ended] if ended < last else NEVER
        return ended

    def keep(self, owners: list[int]) -> None:
        """Hold on to the operations of the ends that are left, in this order, and to no other."""
        entries = self._entries
        self._entries = [entries[owner] for owner in owners]

    def advance(self, now: i64) -> None:
        """Let expire what is due up to *now*, which nothing that is fed later lies before."""
        self._turn(now)

    def finish(self) -> None:
        """Let everything expire that is still pending."""
        self._turn(LIMIT)

    def _arm(self, now: i64, deadline: i64) -> TimerEntry:
        wheel = self._wheel
        entry = TimerEntry(deadline, None)
        due = wheel.arm(entry, now)
        self.peak_pending = max(self.peak_pending, self._counts.pending)
        # An entry that is due later than another hangs in no bucket that comes up earlier.
        if due < self._due:
            self._due = self._next()
        return entry

    def _turn(self, now: i64) -> None:
        """Stop at every instant up to *now* at which the wheel has something to do."""
        wheel = self._wheel
        due = self._next()
        while due <= now:
            self.wake_ups += 1
            wheel.open_pass(due)
            while wheel.pass_is_open():
                entry = wheel.pop_due()
                if entry is not None:
                    self.expired += 1
                    self.lateness.record(entry.late_at(due))
            due = self._next()
        self._due = due

    def _next(self) -> i64:
        due = self._wheel.next_expiration()
        return NEVER if due is None else due
