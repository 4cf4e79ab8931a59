"""The hierarchical timing wheel. Rank 0: integers only, no clock, no loop, no thread.

Sources: Varghese & Lauck, "Hashed and hierarchical timing wheels" (1997), scheme 7; Kafka's
TimingWheel and SystemTimer for the vocabulary and for waking up only where a bucket waits.
"""

from __future__ import annotations

from mypy_extensions import i64

from aiowheel.wheel._entry import TimerEntry
from aiowheel.wheel._invariants import check_invariants
from aiowheel.wheel._limits import (
    REFILES_PER_STEP,
    checked_deadline,
    checked_geometry,
    checked_now,
)
from aiowheel.wheel._rings import Rings
from aiowheel.wheel._statistics import WheelStatistics
from aiowheel.wheel._tally import Tally


class TimingWheel(Rings):
    """Holds deadlines and returns those that have come, at O(1) each whatever their number.

    Time is any integer clock of the caller's choice. A deadline is filed under the first tick at or
    after it, so no entry is ever returned early, and one is late by less than a tick when
    ``advance`` is called at every ``next_expiration``. Level 0 holds the current block of
    ``wheel_size`` ticks, each overflow level a block ``wheel_size`` times wider; a bucket that
    comes up on an overflow level cascades: its entries are filed again, one level finer.

    Order: ``advance`` returns entries by tick, and within a tick in the order they were scheduled.
    An entry moved to a later deadline takes its place in that order when it is filed again, not
    when it was moved.

    A wheel that is dropped cancels its entries.

    Args:
        tick: Width of one bucket of the finest level, in the caller's unit, at least 1.
        wheel_size: Buckets a level, at least 2.
        start: The wheel's time at birth, any sign.
        tally: Where to count; for an owner that shares its counts with the wheel.

    Raises:
        ValueError: An argument is out of range (times reach 2**61 - 1 either side of zero).
        TypeError: An argument is not an integer.
    """

    __slots__ = ()

    def __init__(
        self, tick: int = 1, wheel_size: int = 256, start: int = 0, *, tally: Tally | None = None
    ) -> None:
        checked_geometry(tick, wheel_size, start)
        super().__init__(tick, wheel_size, start, Tally() if tally is None else tally)

    def __del__(self) -> None:
        # Entries and buckets are invisible to the cyclic collector: their rings must be broken. And
        # what the entries refer to may be what the collector is about to clear: an entry that
        # somebody holds must not lead there.
        if getattr(self, "_finest", None) is None:  # the arguments were refused
            return
        failure: Exception | None = None
        for entry in self.clear():
            try:
                entry.drop()
            except Exception as error:  # the other entries must be dropped all the same
                failure = error
        if failure is not None:
            raise failure

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError("TimingWheel cannot be copied or pickled: an entry hangs in one wheel")

    # --- arming -----------------------------------------------------------------------------

    def schedule(self, deadline: int, payload: object = None) -> TimerEntry:
        """File *deadline*; one at or before now is returned by the next ``advance``.

        Args:
            deadline: In the caller's unit, at most 2**61 - 1 either side of zero.
            payload: Kept with the entry until it is cancelled.

        Raises:
            OverflowError: *deadline* is out of range.
            TypeError: *deadline* is not an integer.

        Cost: O(levels), in practice O(1).
        """
        checked_deadline(deadline)
        entry = TimerEntry(deadline, payload, None)
        self.arm(entry)
        return entry

    def arm(self, entry: TimerEntry) -> None:
        """File an entry that is not pending, under the deadline it carries."""
        tally = self._tally
        entry._tally = tally
        tally.pending += 1
        tally.scheduled += 1
        self._place(entry)

    def reschedule(self, entry: TimerEntry, deadline: int) -> None:
        """Move a pending entry, or re-arm a finished one, to *deadline*.

        A later deadline is written down and nothing else: the entry is filed again when its old
        bucket comes up.

        Raises:
            OverflowError: *deadline* is out of range.
            TypeError: *deadline* is not an integer.
            ValueError: *entry* is pending in another wheel.

        Cost: O(1) later, O(levels) earlier.
        """
        checked_deadline(deadline)
        tally = entry._tally
        if tally is None:
            entry._deadline = deadline
            self.arm(entry)
        elif tally is not self._tally:
            raise ValueError(f"entry must be pending in this wheel, got {entry!r}")
        else:
            self.move(entry, deadline)

    def move(self, entry: TimerEntry, deadline: i64) -> None:
        """Move an entry known to be pending here to a deadline known to be in range."""
        self._tally.rescheduled += 1
        later = deadline >= entry._deadline
        entry._deadline = deadline
        if later and deadline > self._now:
            return  # it hangs at its old tick or before, and no division was needed to know
        if self._tick_of(deadline) < entry._filed or deadline <= self._now:
            entry._unlink()
            self._place(entry)

    # --- time -------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """The wheel's time, in the caller's unit."""
        return self._now

    def advance(self, now: int) -> list[TimerEntry]:
        """Move time to *now* and return every entry whose deadline has come, by tick.

        Raises:
            ValueError: *now* lies before the wheel's time.
            OverflowError: *now* is out of range.
            TypeError: *now* is not an integer.

        Cost: O(levels + buckets visited + entries due), whatever the distance.
        """
        self.open_pass(now)
        entries: list[TimerEntry] = []
        while self.pass_is_open():
            entry = self.pop_due()
            if entry is not None:
                entries.append(entry)
        return entries

    def open_pass(self, now: int) -> None:
        """Move time to *now*, for a caller that takes what is due one by one with ``pop_due``.

        What is scheduled between this call and the end of the pass for a time already past waits
        for the next pass: a callback that re-arms itself at delay 0 cannot keep a pass open.
        """
        checked_now(now, self._now)
        self._reached = self._now  # for the overdue, whose ticks may lie ahead; see _visit
        self._now = now
        self._horizon = self._now // self._tick - self._origin
        self._due.take_all(self._overdue)

    def pass_is_open(self) -> bool:
        """Whether ``pop_due`` still has buckets to visit before the wheel stands at ``now``."""
        return self._current < self._horizon or not self._due.is_empty()

    def pop_due(self) -> TimerEntry | None:
        """Take the next due entry; None when there is none, or none yet.

        None with the pass still open means that a bounded number of entries has been cascaded and
        the caller may look at its watch. The entry is no longer pending.
        """
        for _ in range(REFILES_PER_STEP):
            entry = self._due.pop()
            if entry is None:
                if not self._turn():
                    return None
                continue
            tally = self._tally
            if entry._deadline <= self._reached:
                entry._tally = None
                tally.pending -= 1
                tally.expired += 1
                return entry
            tally.cascaded += 1
            self._file(entry, self._tick_of(entry._deadline))
        return None

    def take(self, entry: TimerEntry) -> None:
        """Take a pending entry that is due, before its turn. O(1)."""
        entry._unlink()
        entry._tally = None
        self._tally.pending -= 1
        self._tally.expired += 1

    def witness(self, now: i64) -> None:
        """Note that time has come to *now*, visiting nothing: for what is scheduled as due already.

        Without it a driver's delay of 0 would wait for the end of the tick.
        """
        self._now = max(self._now, now)

    def forward(self, now: i64) -> None:
        """Catch up with *now* if nothing is due on the way.

        For a driver that slept: without it a short timer armed after ten idle minutes would be
        filed from where the wheel stood then, levels too high.
        """
        if now < self._edge or self.pass_is_open() or not self._overdue.is_empty():
            return
        tick = now // self._tick - self._origin
        upcoming = self._next_tick()
        if upcoming < 0 or upcoming > tick:
            self._now = now
            self._horizon = tick
            self._visit(tick)

    def next_expiration(self) -> int | None:
        """When ``advance`` next has something to do for a pending entry, or None.

        Never later than the true earliest deadline, rounded up to its tick. Earlier when an
        overflow bucket cascades first, or when the entry was moved to a later deadline. ``now``
        when something is due at once.

        Cost: O(levels); each bucket emptied by cancelling costs once more.
        """
        if self._tally.pending == 0:
            return None
        if not self._due.is_empty() or not self._overdue.is_empty():
            return self._now
        tick = self._next_tick()
        return None if tick < 0 else (tick + self._origin) * self._tick

    # --- looking in -------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._tally.pending

    def pending(self) -> list[TimerEntry]:
        """Every pending entry, in no particular order. O(buckets + entries)."""
        return self.entries()

    def clear(self) -> list[TimerEntry]:
        """Cancel every pending entry and return them; unlike ``cancel``, payloads stay.

        Cost: O(buckets + entries).
        """
        entries = self.pending()
        self._unlink_buckets()
        for entry in entries:
            entry._tally = None
        dropped: i64 = len(entries)
        self._tally.pending -= dropped
        self._tally.cancelled += dropped
        return entries

    def statistics(self) -> WheelStatistics:
        """A snapshot of the counts. O(buckets)."""
        tally = self._tally
        return WheelStatistics(
            pending=tally.pending,
            levels=len(self.levels()),
            occupied_buckets=sum([not bucket.is_empty() for bucket in self._buckets()]),
            scheduled=tally.scheduled,
            rescheduled=tally.rescheduled,
            cancelled=tally.cancelled,
            expired=tally.expired,
            cascaded=tally.cascaded,
        )

    def check_invariants(self) -> None:
        """Assert that every entry hangs in the bucket its tick maps to and that the counts agree.

        For tests. O(buckets + entries).
        """
        check_invariants(self)
