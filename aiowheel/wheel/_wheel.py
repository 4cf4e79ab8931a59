"""The hierarchical timing wheel. Rank 0: integers only, no clock, no loop, no thread.

Sources: Varghese & Lauck, "Hashed and hierarchical timing wheels" (1997), scheme 7; Kafka's
TimingWheel and SystemTimer for the vocabulary and for waking up only when a bucket is due. Kafka
chains overflow wheels; here, one wheel has a list of levels.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from mypy_extensions import i64

from aiowheel._arguments import checked_int, safe_repr
from aiowheel._types import Count, Ticks
from aiowheel.wheel._bucket import Bucket, Node, TimerEntry
from aiowheel.wheel._level import Level
from aiowheel.wheel._statistics import Counts, LevelOccupancy, WheelStatistics

LIMIT: Final = 2**61 - 1  #: the furthest time from zero on either side, in the caller's unit
HORIZON: Final = 2**62 - 1  #: more ticks than can lie between two legal times
MOST_BUCKETS: Final = 2**24  #: the largest wheel_size
OVERDUE: Final = 2**61  #: a time minus this is negative, unlike a tick; see `_place`
REFILES_PER_STEP: Final = 1000  #: cascaded entries between two readings of the clock, about 0.1 ms
_MOST_COUNTED: Final = 2**31 - 1  # entries of a bucket, for `count_bucket`

# As the aliases of aiowheel/_types.py: objects to mypyc.
Entry: TypeAlias = TimerEntry
Shared: TypeAlias = Counts | None


class TimingWheel:
    """A hierarchical timing wheel: it holds deadlines and returns the due ones, each in O(1).

    Time is any integer clock of the caller's choice, up to 2**61 - 1. A deadline is filed under the
    first tick at or after it; the last tick ends at 2**61 - 1. No entry is returned early. An entry
    is late by less than a tick if `advance` is called at every `next_expiration`. Level 0 covers
    the current block of `wheel_size` ticks; each overflow level covers a block `wheel_size` times
    wider. When time reaches a bucket of an overflow level, the bucket cascades: its entries are
    filed again at a finer level.

    Order: `advance` returns entries by tick, and within a tick in the order they were scheduled. An
    entry that was moved to a later deadline takes its place in that order when it is filed again,
    not when it was moved.

    A wheel that is dropped cancels its entries. Invariants: see `check_invariants`.

    Args:
        tick: Width of one bucket of the finest level, in the caller's unit, at least 1.
        wheel_size: The number of buckets of each level, from 2 to 2**24.
        start: The wheel's first time, within 2**61 - 1 of zero.
        counts: The counts to update, for an owner that shares them; default: the wheel's own.

    Raises:
        ValueError: An argument is out of range.
        TypeError: An argument is not an integer.
    """

    __slots__ = (
        "_cascade_end",
        "_counts",
        "_current",
        "_due",
        "_edge",
        "_finest",
        "_late",
        "_merges",
        "_now",
        "_origin",
        "_overdue",
        "_pass_end",
        "_reached",
        "_tick",
        "_wheel_size",
    )

    def __init__(
        self,
        tick: Ticks = 1,
        wheel_size: Count = 256,
        start: Ticks = 0,
        *,
        counts: Shared = None,
    ) -> None:
        self._tick: i64 = checked_int("tick", tick, 1, LIMIT)
        self._wheel_size: i64 = checked_wheel_size(wheel_size)
        self._now: i64 = checked_int("start", start, -LIMIT, LIMIT)
        if counts is not None and not isinstance(counts, Counts):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
            raise TypeError(f"counts must be a Counts or None, got {safe_repr(counts)}")
        self._reached: i64 = self._now  # the time of the current tick: deadlines up to it are due
        # Ticks are counted from the one that holds `start`, so that each level begins with block 0.
        self._origin: i64 = self._now // self._tick
        self._current: i64 = 0  # the tick whose bucket was visited last
        self._pass_end: i64 = 0  # the last tick of the pass; after _current only while it is open
        self._counts = Counts() if counts is None else counts
        self._finest = Level(1, self._wheel_size, 0, HORIZON)  # overflow levels follow it
        self._edge: i64 = (self._finest.limit + self._origin) * self._tick  # the end of its block
        self._due = Bucket()  # taken from the levels in this pass, not yet returned or filed again
        self._cascade_end: i64 = 0  # the tick at which the range of the bucket taken last ends
        self._overdue = Bucket()  # armed for a tick already passed; they join the next pass
        self._merges = False  # whether the overdue ones are sorted; see `sort_overdue`
        self._late = Bucket()  # those of this pass, until it has visited the buckets before them

    def __del__(self) -> None:
        # The cyclic collector does not traverse the rings (see `Node`), so they must be broken. It
        # may clear the objects that entries refer to, so an entry that survives must drop its
        # references.
        if getattr(self, "_finest", None) is None:  # the arguments were refused
            return
        failure: Exception | None = None
        for entry in self.clear():
            try:
                entry.drop()
            except Exception as error:  # the other entries must still be dropped
                failure = error
        if failure is not None:
            raise failure

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError("TimingWheel cannot be copied or pickled: an entry belongs to one wheel")

    # --- arming -----------------------------------------------------------------------------

    def schedule(self, deadline: Ticks, payload: object = None) -> TimerEntry:
        """Add an entry; the next `advance` returns it if *deadline* is not after now.

        Args:
            deadline: In the caller's unit, within 2**61 - 1 of zero.
            payload: Any object; the entry keeps it until it is cancelled.

        Raises:
            OverflowError: *deadline* is out of range.
            TypeError: *deadline* is not an integer.

        Cost: O(levels), in practice O(1).
        """
        entry = TimerEntry(checked_deadline(deadline), payload)
        self._add(entry)
        return entry

    def arm(self, entry: TimerEntry, now: i64) -> i64:
        """Add an *entry* that is not pending, at the time *now*; return when it will be due.

        A driver that slept calls this instead of `schedule`. If nothing is due before *now*, the
        wheel's time moves to *now* first. Otherwise, after ten idle minutes, a short timer would be
        filed at too coarse a level.

        Cost: O(levels), in practice O(1).
        """
        if now >= self._edge:
            self._catch_up(now)
        if entry._deadline <= now:
            self.observe_now(now)
        self._add(entry)
        return self.due_at(entry)

    def reschedule(self, entry: Entry, deadline: Ticks) -> None:
        """Move a pending entry, or re-arm a finished one, to *deadline*.

        A later deadline is only stored: the entry is filed again when its old bucket comes up.

        Raises:
            OverflowError: *deadline* is out of range.
            TypeError: *deadline* is not an integer, or *entry* is not a TimerEntry.
            ValueError: *entry* is pending in another wheel.

        Cost: O(1) if later, O(levels) if earlier.
        """
        if not isinstance(entry, TimerEntry):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
            raise TypeError(f"entry must be a TimerEntry, got {safe_repr(entry)}")
        checked = checked_deadline(deadline)
        counts = entry._counts
        if counts is None:
            entry._deadline = checked
            self._add(entry)
        elif counts is not self._counts:
            raise ValueError(f"entry must be pending in this wheel, got {safe_repr(entry)}")
        else:
            self.move(entry, checked)

    def move(self, entry: TimerEntry, deadline: i64) -> None:
        """Move *entry*, which must be pending in this wheel, to *deadline*, which must be legal."""
        self._counts.rescheduled += 1
        later = deadline >= entry._deadline
        entry._deadline = deadline
        overdue = entry._filed < 0
        if later and deadline > self._now and not overdue:
            return  # its old bucket is visited in time; this branch needs no division
        if overdue or deadline <= self._now or self._tick_of(deadline) < entry._filed:
            entry.unlink()
            self._place(entry)

    def due_at(self, entry: TimerEntry) -> i64:
        """Return when a pending *entry* is due: its deadline rounded up to a tick, or now."""
        if entry._deadline <= self._now:
            return self._now
        return max((self._tick_of(entry._deadline) + self._origin) * self._tick, self._reached)

    def _tick_of(self, deadline: i64) -> i64:
        """Return the first tick at or after *deadline*, so that no entry is early."""
        return -(-deadline // self._tick) - self._origin

    def _add(self, entry: TimerEntry) -> None:
        counts = self._counts
        entry._counts = counts
        counts.pending += 1
        counts.scheduled += 1
        self._place(entry)

    def _place(self, entry: TimerEntry) -> None:
        """File an entry that a caller has armed or moved, but never in the open pass."""
        if entry._deadline <= self._now:
            # The entry is due even if its tick is later. It carries the time of this call: the
            # entries of the ticks up to that time come before it, those of later ticks after it.
            entry._filed = self._now - OVERDUE
            self._overdue.append(entry)
        else:
            tick = self._tick_of(entry._deadline)
            if tick < self._cascade_end and not self._due.is_empty():
                entry._filed = tick  # behind those of its tick that still wait to be filed again
                self._due.append(entry)
            else:
                self._file(entry, tick)

    def _file(self, entry: TimerEntry, tick: i64) -> None:
        """Add *entry* at the finest level whose block holds *tick*, which is after the current."""
        entry._filed = tick
        level = self._finest
        while tick >= level.limit:
            coarser = level.coarser
            if coarser is None:
                coarser = Level(level.span, self._wheel_size, self._current, HORIZON)
                level.coarser = coarser
            level = coarser
        level.append(entry, tick)

    # --- time -------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """The wheel's time, in the caller's unit."""
        return self._now

    @property
    def tick(self) -> int:
        """The width of one bucket of the finest level, in the caller's unit."""
        return self._tick

    def advance(self, now: Ticks) -> list[TimerEntry]:
        """Move time to *now* and return every entry that is due, by tick.

        Raises:
            ValueError: *now* lies before the wheel's time.
            OverflowError: *now* is out of range.
            TypeError: *now* is not an integer.

        Cost: O(levels + buckets visited + entries due), whatever the distance.
        """
        self.open_pass(checked_now(now, self._now))
        entries: list[TimerEntry] = []
        while self.pass_is_open():
            entry = self.pop_due()
            if entry is not None:
                entries.append(entry)
        return entries

    def open_pass(self, now: i64) -> None:
        """Move time to *now*, for a caller that takes due entries one by one with `pop_due`.

        A pass that is still open is extended to *now*. An entry that is scheduled during the pass
        for a time already past is returned by the next pass, so that a callback that re-arms itself
        at delay 0 cannot keep a pass open. It is returned after every entry that was due when it
        was scheduled, so that the callback cannot delay the others either.
        """
        self._now = now
        self._pass_end = now // self._tick - self._origin
        if now == LIMIT:  # time ends here, and with it the last tick, however wide
            self._pass_end = self._tick_of(now)
        self._late.take_all(self._overdue)

    def pass_is_open(self) -> bool:
        """Return whether `pop_due` still has buckets to visit before the wheel reaches `now`."""
        return (
            self._current < self._pass_end or not self._due.is_empty() or not self._late.is_empty()
        )

    def pop_due(self) -> TimerEntry | None:
        """Return the next due entry, which is then no longer pending; None at the end of the pass.

        None while the pass is still open means that `REFILES_PER_STEP` entries have been cascaded;
        the caller can then read its clock and continue.
        """
        for _ in range(REFILES_PER_STEP):
            entry = self._due.pop()
            if entry is None:
                if not self._take_next_bucket():
                    return None
                continue
            counts = self._counts
            if entry._deadline <= self._reached or entry._filed < 0:
                entry._counts = None
                counts.pending -= 1
                counts.expired += 1
                return entry
            counts.cascaded += 1
            self._file(entry, self._tick_of(entry._deadline))
        return None

    def take(self, entry: TimerEntry) -> None:
        """Remove a pending entry that is due, before `pop_due` reaches it. O(1)."""
        entry.unlink()
        entry._counts = None
        self._counts.pending -= 1
        self._counts.expired += 1

    def observe_now(self, now: i64) -> None:
        """Move the wheel's time to *now* without visiting buckets.

        An entry scheduled in the past is then due at once. Without this call, a driver's delay of 0
        would wait for the end of the tick.
        """
        self._now = max(self._now, now)

    def sort_overdue(self) -> None:
        """Let the next pass return the overdue entries by deadline, like all the others.

        No pass may be open. O(entries) if they are already in order. From the first call on, each
        overdue entry comes behind those of its tick that are due no later, and before the others.
        """
        self._merges = True
        if self._overdue.is_empty():
            return
        last: i64 = -LIMIT
        entries = list(self._overdue)
        for entry in entries:
            entry._filed = entry._deadline - OVERDUE
        for entry in entries:
            if entry._deadline < last:
                break
            last = entry._deadline
        else:
            return
        self._overdue.unlink_all()
        for entry in sorted(entries, key=_deadline):
            self._overdue.append(entry)

    def next_expiration(self) -> int | None:
        """Return the time at which `advance` next has work for a pending entry, or None.

        The time is never after the earliest deadline, rounded up to its tick. It is earlier when an
        overflow bucket cascades first, or when the entry was moved to a later deadline. It is `now`
        when an entry is due at once.

        Cost: O(levels), and once more for each bucket whose entries were all cancelled.
        """
        if self._counts.pending == 0:
            return None
        if not (self._due.is_empty() and self._overdue.is_empty() and self._late.is_empty()):
            return self._now
        tick = self._next_tick()
        return None if tick < 0 else min((tick + self._origin) * self._tick, LIMIT)

    def _catch_up(self, now: i64) -> None:
        """Move time to *now* if nothing is due before it."""
        if self.pass_is_open() or not self._overdue.is_empty():
            return
        tick = now // self._tick - self._origin
        upcoming = self._next_tick()
        if upcoming < 0 or upcoming > tick:
            self._now = now
            self._pass_end = tick
            self._visit(tick)

    def _next_tick(self) -> i64:
        """Return the tick of the next bucket with an entry in it, or -1."""
        level: Level | None = self._finest
        while level is not None:
            slot = level.next_occupied(self._current)
            if slot >= 0:
                # A finer level's block ends before the next bucket of a coarser one begins.
                return level.base + slot * level.width
            level = level.coarser
        return -1

    def _take_next_bucket(self) -> bool:
        """Take the next bucket within the horizon into the pass; False at the end of the pass."""
        level: Level | None = self._finest if self._current < self._pass_end else None
        while level is not None:
            slot = level.next_occupied(self._current)
            if slot >= 0:
                tick = level.base + slot * level.width
                if tick > self._pass_end:
                    break
                if not self._late.is_empty() and self._take_late(tick):
                    return True
                self._visit(tick)
                self._cascade_end = tick + level.width
                bucket = level.take(slot)
                if self._merges and not self._late.is_empty():
                    self._merge_late(bucket)
                self._due.take_all(bucket)
                return True
            level = level.coarser
        self._visit(self._pass_end)
        if self._late.is_empty():
            return False
        self._due.take_all(self._late)
        return True

    def _take_late(self, tick: i64) -> bool:
        """Take the first late entry into the pass if it was due before *tick*."""
        first = self._late.next
        time = (tick + self._origin) * self._tick
        if self._merges:
            time -= self._tick - 1  # those of this tick are merged into its bucket
        if not isinstance(first, TimerEntry) or first._filed + OVERDUE >= time:
            return False
        first.unlink()
        self._due.append(first)
        return True

    def _merge_late(self, bucket: Bucket) -> None:
        """Move the late entries of the current tick into its *bucket*. O(both)."""
        end: Node | None = self._late
        following = self._late.next
        while isinstance(following, TimerEntry) and following._filed + OVERDUE <= self._reached:
            end = following
            following = following.next
        place = bucket.prev
        while isinstance(end, TimerEntry):  # from the last one to the first
            before = end.prev
            end.unlink()
            while isinstance(place, TimerEntry) and place._deadline > end._deadline:
                place = place.prev
            bucket.insert(end, place)
            end = before

    def _visit(self, tick: i64) -> None:
        """Make *tick* the current one, and move each level to the block that holds it."""
        self._current = tick
        self._reached = (tick + self._origin) * self._tick
        level: Level | None = self._finest
        # The blocks are nested: if one holds the tick, every coarser one holds it as well.
        while level is not None and tick >= level.limit:
            level.move_to(tick)
            level = level.coarser
        self._edge = (self._finest.limit + self._origin) * self._tick

    # --- inspection -------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._counts.pending

    def pending(self) -> list[TimerEntry]:
        """Return every pending entry, in no particular order. O(buckets + entries)."""
        return [entry for bucket in self._buckets() for entry in bucket]

    def clear(self) -> list[TimerEntry]:
        """Cancel every pending entry and return them; unlike `cancel`, payloads stay.

        Cost: O(buckets + entries).
        """
        entries = self.pending()
        for bucket in self._buckets():
            bucket.unlink_all()
        for entry in entries:
            entry._counts = None
        dropped: i64 = len(entries)
        self._counts.pending -= dropped
        self._counts.cancelled += dropped
        return entries

    def statistics(self) -> WheelStatistics:
        """Return a snapshot of the counts. O(buckets)."""
        counts = self._counts
        return WheelStatistics(
            pending=counts.pending,
            levels=len(self._levels()),
            occupied_buckets=sum([not bucket.is_empty() for bucket in self._buckets()]),
            scheduled=counts.scheduled,
            rescheduled=counts.rescheduled,
            cancelled=counts.cancelled,
            expired=counts.expired,
            cascaded=counts.cascaded,
        )

    def occupancy(self, most: Count) -> list[LevelOccupancy]:
        """Return the number of entries in each bucket of every ring, finest ring first.

        Args:
            most: The largest number to count in one bucket, from 1 to 255.

        Cost: O(buckets + occupied buckets x *most*), whatever the number of entries.
        """
        limit: i64 = checked_int("most", most, 1, 255)
        return [
            LevelOccupancy(
                base=(level.base + self._origin) * self._tick,
                width=level.width * self._tick,
                counts=bytes(
                    [
                        bucket.count(limit) if occupied else 0
                        for bucket, occupied in zip(level.buckets, level.occupied, strict=True)
                    ]
                ),
            )
            for level in self._levels()
        ]

    def count_bucket(self, level: Count, slot: Count, most: Count) -> int:
        """Return the number of entries in one bucket, beyond the limit of `occupancy`.

        Args:
            level: The index of the ring in `occupancy`.
            slot: The index of the bucket in the ring.
            most: The largest number to count, at least 1.

        Raises:
            ValueError: There is no such ring or bucket, or *most* is out of range.

        Cost: O(*most*).
        """
        levels = self._levels()
        ring = levels[checked_int("level", level, 0, len(levels) - 1)]
        place: i64 = checked_int("slot", slot, 0, len(ring.buckets) - 1)
        limit: i64 = checked_int("most", most, 1, _MOST_COUNTED)
        return ring.buckets[place].count(limit)

    def check_invariants(self) -> None:
        """Assert that every entry is in the bucket of its tick and that the counts agree.

        This method is for tests. O(buckets + entries).
        """
        counts = self._counts
        entries = self.pending()
        assert len(entries) == counts.pending
        assert counts.pending + counts.cancelled + counts.expired == counts.scheduled
        assert self._current <= self._pass_end
        for bucket in (self._overdue, self._late):
            for entry in bucket:
                assert entry._filed < 0
        for entry in entries:
            assert entry._counts is counts
            assert entry._deadline <= self._now or self._tick_of(entry._deadline) >= entry._filed
        narrower: i64 = 1
        for level in self._levels():
            assert level.width == narrower
            narrower = level.span
            assert level.base <= self._current < level.limit
            assert level.flags == sum(level.occupied)
            for slot, bucket in enumerate(level.buckets):
                assert bucket.flagged == (level.occupied[slot] == 1)
                assert bucket.flagged or bucket.is_empty()
                for entry in bucket:
                    assert entry._filed > self._current
                    assert (entry._filed - level.base) // level.width == slot
                    assert level.slot_of(entry._filed) == slot

    def _levels(self) -> list[Level]:
        levels: list[Level] = []
        level: Level | None = self._finest
        while level is not None:
            levels.append(level)
            level = level.coarser
        return levels

    def _buckets(self) -> list[Bucket]:
        buckets = [self._due, self._overdue, self._late]
        return buckets + [b for level in self._levels() for b in level.buckets]


def _deadline(entry: TimerEntry) -> int:
    return entry._deadline


def checked_wheel_size(value: object) -> int:
    """Return *value* if it is a legal number of buckets; raise an error otherwise."""
    return checked_int("wheel_size", value, 2, MOST_BUCKETS)


def checked_deadline(value: object) -> i64:
    """Return *value* if it is an integer within `LIMIT` of zero; raise an error otherwise."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"deadline must be an int within 2**61 - 1 of zero, got {safe_repr(value)}")
    if not -LIMIT <= value <= LIMIT:
        raise OverflowError(f"deadline must be within 2**61 - 1 of zero, got {safe_repr(value)}")
    return value


def checked_now(value: object, wheel_now: int) -> i64:
    """Return *value* if it is an integer from the wheel's time to `LIMIT`; raise otherwise."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            f"now must be an int from the wheel's time {wheel_now}, got {safe_repr(value)}"
        )
    if value < wheel_now:
        raise ValueError(
            f"now must be at least the wheel's time {wheel_now}, got {safe_repr(value)}"
        )
    if value > LIMIT:
        raise OverflowError(f"now must be at most 2**61 - 1, got {safe_repr(value)}")
    return value
