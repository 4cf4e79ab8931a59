"""The levels of a wheel and how entries are filed in them. Rank 0: no clock, no loop.

Sources: Varghese & Lauck 1997, scheme 7; the chain of overflow wheels is Kafka's, here a flat list.
"""

from __future__ import annotations

from mypy_extensions import i64

from aiowheel.wheel._bucket import Bucket
from aiowheel.wheel._entry import TimerEntry
from aiowheel.wheel._level import Level
from aiowheel.wheel._limits import HORIZON
from aiowheel.wheel._tally import Tally


class Rings:
    """Where the wheel stands, what hangs where, and what comes up next.

    Ticks count from the one that holds the wheel's start, so that each level begins with block 0.
    Invariants: see `check_invariants`.
    """

    __slots__ = (
        "_current",
        "_due",
        "_edge",
        "_finest",
        "_horizon",
        "_now",
        "_origin",
        "_overdue",
        "_reached",
        "_tally",
        "_tick",
        "_wheel_size",
    )

    def __init__(self, tick: i64, wheel_size: i64, start: i64, tally: Tally) -> None:
        self._tick: i64 = tick
        self._wheel_size: i64 = wheel_size
        self._now: i64 = start
        self._reached: i64 = start  # deadlines up to here are due
        # Ticks count from the one that holds `start`; each level then begins with block 0.
        self._origin: i64 = self._now // self._tick
        self._current: i64 = 0  # the tick whose bucket was visited last
        self._horizon: i64 = 0  # the tick of `now`; ahead of _current only while a pass is open
        self._tally = tally
        self._finest = Level(1, self._wheel_size, 0, HORIZON)  # the overflow levels hang behind it
        self._edge: i64 = (self._finest.limit + self._origin) * self._tick  # of its block
        self._due = Bucket()  # taken off the levels in this pass, still to be returned or filed
        self._overdue = Bucket()  # scheduled for a tick already passed: first of the next pass

    def _tick_of(self, deadline: i64) -> i64:
        """The first tick at or after *deadline*: ceil, so nothing is early."""
        return -(-deadline // self._tick) - self._origin

    def _place(self, entry: TimerEntry) -> None:
        """File an entry of the caller's: not into the pass that is under way."""
        deadline = entry._deadline
        tick = self._tick_of(deadline)
        if tick <= self._horizon or deadline <= self._now:
            entry._filed = self._horizon
            self._overdue.append(entry)
        else:
            self._file(entry, tick)

    def _file(self, entry: TimerEntry, tick: i64) -> None:
        """Hang *entry* at the finest level whose block holds *tick*, which is still to come."""
        entry._filed = tick
        level = self._finest
        while tick >= level.limit:
            coarser = level.coarser
            if coarser is None:
                coarser = Level(level.span, self._wheel_size, self._current, HORIZON)
                level.coarser = coarser
            level = coarser
        level.append(entry, tick)

    def due_at(self, entry: TimerEntry) -> i64:
        """When a pending *entry* is to be returned: its deadline, rounded up to a tick, or now."""
        if entry._deadline <= self._now:
            return self._now
        return max((self._tick_of(entry._deadline) + self._origin) * self._tick, self._reached)

    def _next_tick(self) -> i64:
        """The tick of the next bucket with an entry in it, or -1."""
        level: Level | None = self._finest
        while level is not None:
            slot = level.next_occupied(self._current)
            if slot >= 0:
                # A finer level's block ends before the next bucket of a coarser one begins.
                return level.base + slot * level.width
            level = level.coarser
        return -1

    def _turn(self) -> bool:
        """Take the next bucket within the horizon into the pass; False when the pass is over."""
        level: Level | None = self._finest
        while level is not None:
            slot = level.next_occupied(self._current)
            if slot >= 0:
                tick = level.base + slot * level.width
                if tick > self._horizon:
                    break
                self._visit(tick)
                self._due.take_all(level.take(slot))
                return True
            level = level.coarser
        self._visit(self._horizon)
        return False

    def _visit(self, tick: i64) -> None:
        self._current = tick
        self._reached = (tick + self._origin) * self._tick
        level: Level | None = self._finest
        # The blocks are nested: where one holds the tick, every coarser one does as well.
        while level is not None and tick >= level.limit:
            level.move_to(tick)
            level = level.coarser
        self._edge = (self._finest.limit + self._origin) * self._tick

    def levels(self) -> list[Level]:
        """The levels made so far, finest first."""
        levels: list[Level] = []
        level: Level | None = self._finest
        while level is not None:
            levels.append(level)
            level = level.coarser
        return levels

    def _buckets(self) -> list[Bucket]:
        return [self._due, self._overdue] + [b for level in self.levels() for b in level.buckets]

    def entries(self) -> list[TimerEntry]:
        """Whatever hangs anywhere, in no particular order."""
        return [entry for bucket in self._buckets() for entry in bucket]

    def _unlink_buckets(self) -> None:
        for bucket in self._buckets():
            bucket.unlink_all()
