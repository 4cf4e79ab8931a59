"""A store in memory, for tests: the semantics of the other stores on the loop's clock. Rank 4."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from copy import deepcopy
from datetime import datetime
from typing import TypeAlias

from aiowheel._arguments import checked_int
from aiowheel.durable._databases import MOST_PARTITIONS, distributed
from aiowheel.durable._instants import to_us
from aiowheel.durable._store import Store
from aiowheel.durable.operations import (
    Cancel,
    Change,
    Cursor,
    DeadLetter,
    Leased,
    Move,
    Operation,
    Placed,
    Put,
    Redrive,
    Removed,
    Result,
    Row,
    Settle,
    Summary,
    part_of,
    row_of,
    second_name,
    settled_row,
)
from aiowheel.errors import StoreError, TimerExistsError


class _Part:
    """One partition: its lease, its timers in order, and the changes left for its owner."""

    def __init__(self) -> None:
        self.owner = ""
        self.epoch = 0
        self.until_us = 0
        self.horizon_us = 0
        self.order: list[tuple[int, int]] = []  # (due, id)
        self.inbox: list[int] = []


_State: TypeAlias = tuple[
    list[_Part], dict[str, int], dict[int, Row], dict[str, int], dict[int, DeadLetter]
]


class MemoryStore(Store):
    """A store whose timers exist as long as the object, also between two `DurableTimers`.

    Several `DurableTimers` of one loop may share it, as processes share a database. Its clock is
    the loop's clock: on a virtual loop a month passes in milliseconds, and a second virtual loop
    continues from where the store was closed. Window and lease are therefore a day by default;
    tests of several owners pass `lease` to `DurableTimers`.

    Args:
        partitions: From 1 to 1024.
        start: The store's time when it is first opened, an aware datetime; default: the real time.
    """

    default_window: float = 86_400.0
    default_lease: float = 86_400.0

    def __init__(self, *, partitions: int = 4, start: datetime | None = None) -> None:
        super().__init__()
        self.partitions: int = checked_int("partitions", partitions, 1, MOST_PARTITIONS)
        self._start_us = time.time_ns() // 1000 if start is None else to_us("start", start)
        self._origin: float | None = None
        self._closed_us = self._start_us
        self._loop: asyncio.AbstractEventLoop | None = None
        self._parts = [_Part() for _ in range(self.partitions)]
        self._members: dict[str, int] = {}
        self._rows: dict[int, Row] = {}
        self._ids: dict[str, int] = {}
        self._dead: dict[int, DeadLetter] = {}
        # A crash does not reset these: an id is never used again.
        self._last_id = 0
        self._last_dead = 0
        self._synced: _State | None = None  # the state after a crash; None: the present state
        self._begun: _State | None = None  # the state before the transaction, if a crash is planned
        self._statements_left = 0  # statements until the crash; 0: no crash is planned
        self._down_until = float("-inf")

    async def open(self, *, create: bool = True) -> None:  # noqa: ARG002 - for other stores
        """Start the clock at the first call; a later loop with an earlier time continues it."""
        loop, last = asyncio.get_running_loop(), self._loop
        self._loop = loop
        if last is None or (last is not loop and self.clock_us() < self._closed_us):
            self._origin = loop.time() - (self._closed_us - self._start_us) / 1e6
            self._down_until = float("-inf")

    async def aclose(self) -> None:
        """Record the time; the timers stay."""
        self._closed_us = self.clock_us()

    def clock_us(self) -> int:
        """Return the start of this store plus the loop's time since it was opened."""
        origin, loop = self._origin, self._loop
        if origin is None or loop is None:
            return self._start_us
        return self._start_us + round((loop.time() - origin) * 1e6)

    # --- faults -------------------------------------------------------------------------------

    def stop_syncing(self) -> None:
        """Stop syncing commits to the simulated disk: the next crash loses the later ones."""
        self._synced = self._saved()

    def crash(self, down: float = 0.0) -> None:
        """Crash: all commits before `stop_syncing` stay, and calls fail for *down* seconds.

        Open `DurableTimers` read their timers again, as after a lost connection. A transaction runs
        in one turn of the loop, so no transaction is open at a crash.
        """
        if self._synced is not None:
            self._restore(self._synced)
            self._synced = None
        self._down_until = asyncio.get_running_loop().time() + down
        self._report_loss()

    def crash_after(self, statements: int) -> None:
        """Crash at the end of the given statement, counted from 1 over all later transactions.

        The call that executes this statement raises `StoreError`. A transaction has a statement for
        each operation, a renewal of leases has two, and each ends with the commit as its last
        statement. A crash before the end of the commit rolls the transaction back.
        """
        self._statements_left = checked_int("statements", statements, 1, 1_000_000)

    def _saved(self) -> _State:
        return deepcopy((self._parts, self._members, self._rows, self._ids, self._dead))

    def _restore(self, state: _State) -> None:
        self._parts, self._members, self._rows, self._ids, self._dead = state

    def _check(self) -> None:
        if asyncio.get_running_loop().time() < self._down_until:
            raise StoreError("the store in memory is down")

    def _begin(self) -> None:
        self._check()
        self._begun = self._saved() if self._statements_left else None

    def _commit(self, *, is_hint: bool) -> None:
        self._begun = None
        if is_hint:
            asyncio.get_running_loop().call_soon(self._hint)
        self._end_statement()

    def _end_statement(self) -> None:
        if self._statements_left:
            self._statements_left -= 1
            if not self._statements_left:
                if self._begun is not None:
                    self._restore(self._begun)
                self.crash()
                raise StoreError("the store in memory crashed")

    # --- writing ------------------------------------------------------------------------------

    async def commit(self, owner: str, operations: Sequence[Operation]) -> list[Result]:
        """Execute the operations in one turn of the loop, so that they all happen or none."""
        await asyncio.sleep(0)  # other tasks run during a commit, as with a database
        self._begin()
        touched: set[int] = set()
        results: list[Result] = []
        for operation in operations:
            results.append(self._execute(owner, operation, touched))
            self._end_statement()
        self._commit(is_hint=bool(touched))
        return results

    def _execute(self, owner: str, operation: Operation, touched: set[int]) -> Result:
        match operation:
            case Put():
                result = self._put(operation)
            case Cancel():
                return self._cancel(owner, operation, touched)
            case Move():
                result = self._move(operation)
            case Redrive():
                result = self._redrive(operation)
            case Settle():
                return self._settle(operation)
        if isinstance(result, Placed):
            part = self._parts[result.row.part]
            # The owner may hold the old version of a changed row, even if the new one is due late.
            if not result.is_new or result.row.due_us <= part.horizon_us:
                self._leave(owner, result.row, touched)
        return result

    def _leave(self, owner: str, row: Row, touched: set[int]) -> None:
        part = self._parts[row.part]
        if part.owner not in {"", owner}:
            part.inbox.append(row.id)
            touched.add(row.part)

    def _put(self, put: Put) -> Result:
        old = self._rows.get(self._ids.get(put.name, 0))
        if old is None:
            self._last_id += 1
            row = row_of(put, self._last_id, 1, part_of(put.name, self.partitions))
            self._write(row)
            return Placed(row, is_new=True)
        if put.if_exists == "error":
            return TimerExistsError(put.name)
        same = (old.handler, old.recurrence, old.payload)
        if put.if_exists == "keep" or (
            put.if_exists == "revise" and same == (put.handler, put.recurrence, put.payload)
        ):
            return None
        row = row_of(put, old.id, old.gen + 1, old.part)
        self._write(row)
        return Placed(row, is_new=False)

    def _move(self, move: Move) -> Result:
        old = self._rows.get(self._ids.get(move.name, 0))
        if old is None:
            return None
        row = old._replace(
            due_us=move.due_us, gen=old.gen + 1, attempt=0, first_due_us=None, fire_id=None
        )
        self._write(row)
        return Placed(row, is_new=False)

    def _cancel(self, owner: str, cancel: Cancel, touched: set[int]) -> Result:
        row = self._rows.get(self._ids.get(cancel.name, 0))
        if row is None:
            return None
        self._delete(row)
        part = self._parts[row.part]
        # The owner may still hold an older version, which is due sooner.
        is_known = row.id not in part.inbox
        if row.due_us <= part.horizon_us:
            self._leave(owner, row, touched)
        is_final = (
            part.owner in {"", owner}
            or part.until_us < self.clock_us()
            or (is_known and min(part.until_us, part.horizon_us) < row.due_us)
        )
        return Removed(row.id, row.gen, row.due_us, is_final)

    def _settle(self, settle: Settle) -> Result:
        if self._parts[settle.part].epoch != settle.epoch:
            return "stale"
        row = self._rows.get(settle.id)
        if row is None or (row.gen, row.name) != (settle.gen, settle.name):
            return "gone"
        if settle.error is not None:
            self._bury(row, settle)
        if settle.due_us is None:
            self._delete(row)
        else:
            self._write(settled_row(row, settle, settle.due_us))
        return "done"

    def _bury(self, row: Row, settle: Settle) -> None:
        self._last_dead += 1
        due_us = row.due_us if row.first_due_us is None else row.first_due_us
        if settle.dead_due_us is not None:
            due_us = settle.dead_due_us
        self._dead[self._last_dead] = DeadLetter(
            self._last_dead,
            *(row.name, row.handler, due_us, row.identity(), settle.attempts, self.clock_us()),
            *(settle.error or "", row.payload),
        )

    def _redrive(self, redrive: Redrive) -> Result:
        dead = self._dead.get(redrive.dead_id)
        if dead is None:
            return None
        name = second_name(dead) if dead.name in self._ids else dead.name
        placed = self._put(Put(name, dead.handler, self.clock_us(), dead.payload, None, "error"))
        if not isinstance(placed, Placed):
            return placed
        del self._dead[dead.id]
        row = placed.row._replace(fire_id=dead.fire_id)
        self._write(row)
        return Placed(row, placed.is_new)

    def _write(self, row: Row) -> None:
        old = self._rows.get(row.id)
        order = self._parts[row.part].order
        if old is not None:
            del order[bisect_left(order, (old.due_us, old.id))]
        self._rows[row.id] = row
        self._ids[row.name] = row.id
        insort(order, (row.due_us, row.id))

    def _delete(self, row: Row) -> None:
        order = self._parts[row.part].order
        del order[bisect_left(order, (row.due_us, row.id))]
        del self._rows[row.id], self._ids[row.name]

    # --- leases -------------------------------------------------------------------------------

    async def renew(
        self, owner: str, *, lease_us: int, horizon_us: int, give_up: Sequence[int] = ()
    ) -> Leased:
        """Renew, take and release partitions; see `Store.renew`."""
        await asyncio.sleep(0)
        self._begin()
        now = self.clock_us()
        self._members = {name: until for name, until in self._members.items() if until >= now}
        self._members[owner] = now + lease_us
        for number in give_up:
            self._give_up(owner, self._parts[number])
        self._end_statement()
        leases = [(n, each.owner, each.epoch, each.until_us) for n, each in enumerate(self._parts)]
        epochs, share, expiry, gained = distributed(leases, len(self._members), owner, now, give_up)
        for number in gained:
            self._parts[number].inbox = []
        for number, epoch in epochs.items():
            part = self._parts[number]
            part.owner, part.epoch = owner, epoch
            part.until_us, part.horizon_us = now + lease_us, now + horizon_us
        self._end_statement()
        changes = self._take_changes(owner)
        self._commit(is_hint=bool(give_up))
        return Leased(now, epochs, share, expiry, changes)

    @staticmethod
    def _give_up(owner: str, part: _Part) -> None:
        if part.owner == owner:
            part.owner, part.until_us, part.horizon_us = "", 0, 0

    async def release(self, owner: str) -> None:
        """Give up all partitions of *owner*."""
        self._begin()
        self._members.pop(owner, None)
        for part in self._parts:
            self._give_up(owner, part)
        self._commit(is_hint=True)

    async def changes(self, owner: str) -> tuple[list[Change], bool]:
        """Take the changes."""
        await asyncio.sleep(0)
        self._begin()
        changes = self._take_changes(owner)
        self._commit(is_hint=False)
        return changes, any(not part.owner for part in self._parts)

    def _take_changes(self, owner: str) -> list[Change]:
        found: dict[int, Change] = {}
        for part in self._parts:
            if part.owner == owner:
                found |= {id_: Change(id_, self._rows.get(id_)) for id_ in part.inbox}
                part.inbox = []
        return list(found.values())

    # --- reading ------------------------------------------------------------------------------

    async def page(self, cursors: Sequence[Cursor], until_us: int, limit: int) -> list[list[Row]]:
        """Return rows in order."""
        self._check()
        pages: list[list[Row]] = []
        for cursor in cursors:
            order = self._parts[cursor.part].order
            first = bisect_right(order, (cursor.due_us, cursor.id))
            found = order[first : first + limit]
            pages.append([self._rows[id_] for due_us, id_ in found if due_us <= until_us])
        await asyncio.sleep(0)  # the rows may be outdated when the caller gets them
        return pages

    async def get(self, name: str) -> Row | None:
        """Return the timer of that name."""
        self._check()
        return self._rows.get(self._ids.get(name, 0))

    async def rows(self, *, after: str = "", prefix: str = "", limit: int = 1000) -> list[Row]:
        """Return timers by name."""
        self._check()
        names = sorted(each for each in self._ids if each > after and each.startswith(prefix))
        return [self._rows[self._ids[name]] for name in names[:limit]]

    async def dead_letters(self, *, after: int = 0, limit: int = 1000) -> list[DeadLetter]:
        """Return dead letters by id."""
        self._check()
        return [dead for number, dead in self._dead.items() if number > after][:limit]

    async def summary(self) -> Summary:
        """Return the counts of this store."""
        self._check()
        now = self.clock_us()
        owners: dict[str, int] = {}
        for part in self._parts:
            owners[part.owner] = owners.get(part.owner, 0) + 1
        hours = [0] * 24
        for row in self._rows.values():
            hour = max(0, (row.due_us - now) // 3_600_000_000)
            if hour < 24:
                hours[hour] += 1
        overdue = sum(row.due_us <= now for row in self._rows.values())
        return Summary(len(self._rows), overdue, len(self._dead), owners, hours)

    async def check(self) -> list[str]:
        """Compare the indexes with the rows."""
        flaws = [
            f"timer {row.name!r} is not in the order of its partition"
            for row in self._rows.values()
            if (row.due_us, row.id) not in self._parts[row.part].order
        ]
        if sum(len(part.order) for part in self._parts) != len(self._rows):
            flaws.append("the partitions and the timers differ in number")
        return flaws
