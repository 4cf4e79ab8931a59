"""The timers in memory, which are due within the window, and the task that reads them. Rank 4.

A partition is read in pages by (due, id), up to its cursor. Every timer of the partition at or
before the cursor is in memory or has begun to fire, unless a later commit has changed it. Large
payloads are not in memory before their timers are due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from aiowheel._events import emit
from aiowheel.durable._lagging_clock import LaggingClock
from aiowheel.durable._statistics import Counts
from aiowheel.durable._store import Store
from aiowheel.durable.operations import Change, Cursor, Row, without_large_payload
from aiowheel.errors import StoreError, TimerClosedError
from aiowheel.timer import Timer, TimerHandle

_NOT_YET_US: Final = -(2**62)
_NEVER: Final = float("inf")
_LAST_ID: Final = 2**62
#: The most rows of one page, over all partitions.
PAGE: Final = 1000
#: The most timers in memory; beyond this number, only those that are due very soon are read.
MOST_RESIDENT: Final = 100_000
_WINDOW_OF_FULL_MEMORY_US: Final = 1_000_000
_PAUSE_AFTER_ERROR = 0.25  # seconds


def _by_due(row: Row) -> tuple[int, int]:
    return row.due_us, row.id


class Entry:
    """A timer in memory that has not begun to fire; *row* is None once it was dropped."""

    __slots__ = ("handle", "row")

    def __init__(self, row: Row) -> None:
        self.row: Row | None = row
        self.handle: TimerHandle | None = None


class Held:
    """A partition that this process owns."""

    __slots__ = ("cursor", "draining", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.cursor: tuple[int, int] = (_NOT_YET_US, 0)
        self.draining = False  # no fire begins, because the partition will be released


class Window:
    """The timers in memory, by id.

    Args:
        store: The store to read from.
        timer: Holds the deadlines.
        clock: The store's clock.
        window_us: Microseconds ahead to read.
        counts: Counts errors.
        ready: Called with each entry that is due.
        begun: Returns whether a fire of this id, generation and name has begun and is not settled.
    """

    def __init__(
        self,
        store: Store,
        timer: Timer,
        clock: LaggingClock,
        window_us: int,
        counts: Counts,
        ready: Callable[[Entry], None],
        begun: Callable[[int, int, str], bool],
    ) -> None:
        self._store = store
        self._timer = timer
        self._clock = clock
        self._window_us = window_us
        self._counts = counts
        self._ready = ready
        self._begun = begun
        self.held: dict[int, Held] = {}
        self.resident: dict[int, Entry] = {}
        self._wanted = asyncio.Event()
        self._page = PAGE  # rows of the next page
        # The end of the page that is being read.
        self._reading_until_us = _NOT_YET_US
        # The latest generation and attempt of each row that commits changed during the read.
        self._touched: dict[int, tuple[float, float]] = {}
        self._gone: set[int] = set()  # rows of which the store had no such version during the read
        #: Returns whether pages may be read; `DurableTimers` sets it to the leases' check.
        self.may_read: Callable[[], bool]
        #: Returns whether there is room for another page; `DurableTimers` sets it to the runner's.
        self.has_room: Callable[[], bool]

    # --- timers in memory ---------------------------------------------------------------------

    def put(self, row: Row) -> None:
        """Replace a row by its version after a commit."""
        if self._reading_until_us != _NOT_YET_US:
            self._touch(row.id, (row.gen, row.attempt))
        if row.id in self.resident:
            self.forget(row.id)
        held = self.held.get(row.part)
        if held is not None and (
            row.due_us <= self._reading_until_us or (row.due_us, row.id) <= held.cursor
        ):
            self.arm(row)

    def drop(self, row_id: int) -> None:
        """Drop a row that was deleted."""
        if self._reading_until_us != _NOT_YET_US:
            self._touch(row_id, (_NEVER, _NEVER))
        self.forget(row_id)

    def end(self, row_id: int, gen: int, *, is_gone: bool) -> None:
        """Record that the fire of this generation has ended; a later one may be in memory.

        Args:
            row_id: The id of the timer.
            gen: The generation that has fired.
            is_gone: Whether the store no longer had that generation.
        """
        if self._reading_until_us != _NOT_YET_US:
            self._touch(row_id, (gen, _NEVER))
            if is_gone:
                self._gone.add(row_id)

    def _touch(self, row_id: int, version: tuple[float, float]) -> None:
        """Record a version that a commit has written or deleted while a page is read."""
        self._touched[row_id] = max(version, self._touched.get(row_id, (0, 0)))

    def forget(self, row_id: int) -> None:
        """Remove a row from memory, if it is there."""
        entry = self.resident.pop(row_id, None)
        if entry is not None:
            entry.row = None
            if entry.handle is not None:
                entry.handle.cancel()

    def _keep(self, row: Row) -> Entry:
        entry = self.resident[row.id] = Entry(without_large_payload(row))
        return entry

    def arm(self, row: Row) -> None:
        """Put a row on the wheel, or pass it to `ready` if it is due."""
        if self._begun(row.id, row.gen, row.name):
            return  # the settlement of that fire decides
        if row.id in self.resident:
            self.forget(row.id)
        self._arm(self._keep(row), row)

    def postpone(self, row: Row, pause: float) -> None:
        """Put a row that is due on the wheel again, for *pause* seconds from now."""
        self._wait(self._keep(row), pause)

    def _arm(self, entry: Entry, row: Row) -> None:
        delay_us = row.due_us - self._clock.now_us()
        if delay_us <= 0:
            entry.handle = None
            self._ready(entry)
        else:
            self._wait(entry, delay_us / 1e6)

    def _wait(self, entry: Entry, pause: float) -> None:
        try:
            entry.handle = self._timer.call_later(pause, self._on_due, entry)
        except TimerClosedError:
            entry.handle = None  # the store keeps the timer for another process or a restart

    def _on_due(self, entry: Entry) -> None:
        if entry.row is not None:
            self._arm(entry, entry.row)  # arms it again if it is not due by the store's clock

    def change(self, changes: Iterable[Change]) -> None:
        """Apply the changes of other processes."""
        for change in changes:
            if change.row is None:
                self.drop(change.id)
            else:
                self.put(change.row)

    # --- partitions ---------------------------------------------------------------------------

    def gain(self, part: int, epoch: int) -> None:
        """Start to read a partition."""
        self.held[part] = Held(epoch)
        self._wanted.set()

    def lose(self, parts: Iterable[int]) -> None:
        """Forget the timers of partitions. O(resident)."""
        for part in parts:
            del self.held[part]
        for entry in list(self.resident.values()):
            if entry.row is not None and entry.row.part not in self.held:
                self.forget(entry.row.id)

    def reset(self) -> None:
        """Forget all timers and read them again.

        Commits without an answer may have happened, or the store's clock was set.
        """
        for row_id in list(self.resident):
            self.forget(row_id)
        for part, held in self.held.items():
            fresh = self.held[part] = Held(held.epoch)
            fresh.draining = held.draining
        self._wanted.set()

    # --- reading ------------------------------------------------------------------------------

    def wake(self) -> None:
        """Check again whether to read a page, after room was made or a lease was renewed."""
        self._wanted.set()

    async def run(self) -> None:
        """Read pages ahead of time until cancelled."""
        while True:
            self._wanted.clear()
            pause = self._pause()
            if pause <= 0:
                try:
                    await self._read_page()
                    self._page = min(2 * self._page, PAGE)
                except StoreError as error:
                    # A page may be too much for a slow network.
                    self._page = max(self._page // 4, 1)
                    self._counts.store_errors += 1
                    emit("aiowheel.durable_store_error", call="page", error=repr(error))
                    await self._timer.sleep(_PAUSE_AFTER_ERROR)
                continue
            handle = self._timer.call_later(pause, self._wanted.set)
            try:
                await self._wanted.wait()
            finally:
                handle.cancel()

    def _pause(self) -> float:
        """Return the seconds until a page must be read."""
        if not self.held or not self.may_read() or not self.has_room():
            return float("inf")
        earliest = min(held.cursor[0] for held in self.held.values())
        return (earliest - self._clock.now_us() - self._ahead_us() // 2) / 1e6

    def _ahead_us(self) -> int:
        """Return how far ahead to read.

        If the memory is full, a partition that was just taken over may still have due timers.
        """
        is_full = len(self.resident) >= MOST_RESIDENT
        return _WINDOW_OF_FULL_MEMORY_US if is_full else self._window_us

    async def _read_page(self) -> None:
        until_us = self._clock.now_us() + self._ahead_us()
        behind = [(part, held) for part, held in self.held.items() if held.cursor[0] < until_us]
        limit = max(min(16, self._page), self._page // len(behind))
        self._reading_until_us = until_us
        try:
            cursors = [Cursor(part, *held.cursor) for part, held in behind]
            pages = await self._store.page(cursors, until_us, limit)
        finally:
            self._reading_until_us = _NOT_YET_US
            touched, self._touched = self._touched, {}
            gone, self._gone = self._gone, set()
        read: list[Row] = []
        is_uncertain = False
        for (part, held), rows in zip(behind, pages, strict=True):
            if self.held.get(part) is not held:
                continue  # the partition was lost or reset meanwhile
            full = len(rows) == limit
            held.cursor = (rows[-1].due_us, rows[-1].id) if full else (until_us, _LAST_ID)
            read += rows
        for row in sorted(read, key=_by_due):
            # A page may be older than the commits that ended during the read.
            if (row.gen, row.attempt) > touched.get(row.id, (0, 0)):
                self._take(row)
            elif row.id in gone:
                # Or the store has lost commits in a crash, and this version exists again.
                is_uncertain = True
        if is_uncertain:
            self.reset()

    def _take(self, row: Row) -> None:
        entry = self.resident.get(row.id)
        if entry is None or entry.row is None or entry.row.gen != row.gen:
            self.arm(row)
