"""Who waits for which key, and the checks that complete them. Rank 2: no awaiting here.

Sources: Kafka's DelayedOperationPurgatory (try, watch, try again; check by key) and the action
queue of its broker, here the queue of nested checks.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from typing import Final, cast

from mypy_extensions import i64

from aiowheel._events import emit
from aiowheel._units import FOREVER
from aiowheel.abc import Instrument
from aiowheel.errors import PurgatoryFullError
from aiowheel.purgatory._exit import Exit, failure
from aiowheel.purgatory._operation import Link, Operation, OperationAlarm, abandoned
from aiowheel.purgatory._outcome import Outcome
from aiowheel.purgatory._statistics import PurgatoryStatistics
from aiowheel.purgatory._thresholds import ThresholdOperation
from aiowheel.purgatory._walk import Walk
from aiowheel.purgatory._watchers import Watchers
from aiowheel.timer._driver import Driver

_PENDING: Final = Outcome.PENDING
_COMPLETED: Final = Outcome.COMPLETED
_CANCELLED: Final = Outcome.CANCELLED
_FAILED: Final = Outcome.FAILED


class Room(Exit):
    """The synchronous half of a purgatory; at most *max_pending* wait in it. Else as `Exit`."""

    def __init__(
        self,
        name: str,
        driver: Driver,
        max_pending: int | None,
        purge_interval: int | None,
        instruments: tuple[Instrument, ...],
    ) -> None:
        super().__init__(name, driver, purge_interval, instruments)
        self._max_pending: i64 = FOREVER if max_pending is None else max_pending
        self._full = False  # said so already; until there is room again
        self._busy = False  # a check is under way: nested ones queue up
        # Of each queued call the key, the value of an `advance`, the limit of a check.
        self._queue: deque[tuple[object, int | float | None, int]] = deque()

    # --- coming in --------------------------------------------------------------------------

    def admit(self, operation: Operation, keys: tuple[object, ...]) -> bool:
        """Try; if not met, watch every key and arm the timeout; try again. True if it is over."""
        self.claim(operation)
        operation.keys = keys
        if self._try(operation, None) or operation._outcome is not _PENDING:
            return True
        self._make_room_for(operation)
        try:
            self.lists.link(operation, keys)
        except BaseException:
            operation._place = None
            raise
        if operation._outcome is not _PENDING:  # the hash of a key may run any code
            self.lists.unlink(operation)
            return True
        self._settle_in(operation)
        # Kafka tries again because another thread may have met the condition meanwhile; here a
        # condition, or the hash of a key, may have run code that did.
        return self._try(operation, None) or operation._outcome is not _PENDING

    def claim(self, operation: Operation) -> None:
        """Take a new operation in: its timeout counts from now."""
        if operation._place is not None or operation._outcome is not _PENDING:
            raise ValueError(f"an operation can be watched once, got {operation!r}")
        now = self.driver.checked_now()
        operation._place = self
        operation._created_ns = now
        operation._deadline_ns = min(now + operation._timeout_ns, FOREVER)

    def _make_room_for(self, operation: Operation) -> None:
        if self.pending < self._max_pending:
            self._full = False
            return
        operation._place = None
        if not self._full:
            self._full = True
            emit("aiowheel.purgatory_full", purgatory=self.name, max_pending=self._max_pending)
        raise PurgatoryFullError(self.name, self._max_pending)

    def _settle_in(self, operation: Operation) -> None:
        alarm = OperationAlarm(operation._deadline_ns, operation)
        self.driver.arm(alarm, operation._created_ns)
        operation._alarm = alarm
        self.pending += 1
        self.estimated_total += 1

    def admit_until(
        self, operation: ThresholdOperation, thresholds: list[tuple[object, int | float]]
    ) -> bool:
        """Have *operation* wait for counters; True if enough of them have been reached already."""
        self.claim(operation)
        missing = [item for item in thresholds if not self.counters.reached(item[0], item[1])]
        operation.wanted -= len(thresholds) - len(missing)
        if self._try(operation, None):
            return True
        self._make_room_for(operation)
        self.counters.link(operation, missing)
        self._settle_in(operation)
        return False

    # --- checking ---------------------------------------------------------------------------

    def check(self, key: object, limit: i64) -> int:
        """Ask the operations that watch *key* now; returns how many completed, at most *limit*."""
        if self._busy:
            hash(key)  # refused here, not from within the check under way
            self._queue.append((key, None, limit))
            return 0
        watchers = self.lists.get(key)
        if watchers is None:
            return 0
        self._busy = True
        try:
            completed = self._ask_all(watchers, limit)
            self._drain()
        finally:
            self._busy = False
        return completed

    def _ask_all(self, watchers: Watchers, limit: i64) -> int:
        only = watchers.next
        if watchers.count == 1 and isinstance(only, Link):
            return int(self._ask(only, watchers.key))
        completed = 0
        walk = Walk(watchers)
        try:
            while completed < limit:
                link = walk.next()
                if link is None:
                    break
                completed += self._ask(link, watchers.key)
        finally:
            walk.close()
        return completed

    def check_slice(self, walk: Walk, key: object, limit: i64, slice_ns: i64) -> int:
        """As `check`, for *slice_ns*; what *walk* has not reached then waits for the next turn."""
        loop = cast(AbstractEventLoop, self.driver.loop)
        if self._busy:
            loop.call_soon(self.check_slice, walk, key, limit, slice_ns)
            return 0
        end = self.driver.now_ns() + slice_ns
        completed = 0
        unfinished = False
        self._busy = True
        try:
            while completed < limit and not unfinished:
                link = walk.next()
                if link is None:
                    break
                completed += self._ask(link, key)
                unfinished = completed < limit and self.driver.now_ns() >= end
            self._drain()
        finally:
            self._busy = False
            if unfinished:
                loop.call_soon(self.check_slice, walk, key, limit - completed, slice_ns)
            else:
                walk.close()
        return completed

    def _ask(self, link: Link, key: object) -> bool:
        """Check one operation for *key*; whether that completed it."""
        operation = link.operation
        if operation is None:
            return False
        if operation._outcome is not _PENDING:  # over, and not purged yet
            self.lists.remove(link)
            return False
        return self._try(operation, key)

    def _try(self, operation: Operation, key: object) -> bool:
        if abandoned(operation):
            self.finish(operation, _CANCELLED, None)
            return False
        self.ledger.checks += 1
        operation._checks += 1
        outer, outer_key = self.asked, self.asked_for
        self.asked, self.asked_for = operation, key
        try:
            if operation.try_complete() and operation._outcome is _PENDING:
                self.finish(operation, _COMPLETED, None)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # one bad condition must not end the walk
            self._fail(operation, failure(error))
        finally:
            self.asked, self.asked_for = outer, outer_key
        return operation._outcome is _COMPLETED

    def _fail(self, operation: Operation, error: Exception) -> None:
        if operation._outcome is _PENDING:
            self.finish(operation, _FAILED, error)
        else:  # it forced itself and raised then: whoever awaits it has its result
            self.report(operation, error)

    def advance(self, key: object, value: int | float) -> int:
        """Raise the counter *key* to *value*; returns how many operations that completed."""
        if self._busy:
            hash(key)  # as in `check`
            self._queue.append((key, value, FOREVER))
            return 0
        self._busy = True
        try:
            completed = self._raise(key, value)
            self._drain()
        finally:
            self._busy = False
        return completed

    def _raise(self, key: object, value: int | float) -> int:
        counter = self.counters.raise_to(key, value)
        if counter is None:
            return 0
        completed = 0
        while (operation := self.counters.pop_reached(counter)) is not None:
            operation.wanted -= 1
            completed += self._try(operation, key)
        return completed

    def _drain(self) -> None:
        """Do what was asked for from within, one after the other: no recursion, however deep."""
        while self._queue:
            key, value, limit = self._queue.popleft()
            if value is not None:
                self._raise(key, value)
            else:
                watchers = self.lists.get(key)
                if watchers is not None:
                    self._ask_all(watchers, limit)

    # --- looking in -------------------------------------------------------------------------

    def operations(self) -> list[Operation]:
        """The pending operations, each once."""
        found = list(self.lists.operations())
        found.extend(self.counters.operations())
        return [operation for operation in found if operation._outcome is _PENDING]

    def operations_of(self, key: object) -> list[Operation]:
        """The pending operations that wait for *key*."""
        found: list[Operation] = []
        watchers = self.lists.get(key)
        if watchers is not None:
            found.extend(watchers.operations())
        counter = self.counters.get(key)
        if counter is not None:
            found.extend(counter.operations())
        return [operation for operation in found if operation._outcome is _PENDING]

    def sizes(self) -> list[tuple[int, object]]:
        """How many wait for each key, and the key."""
        totals = {key: count for count, key in self.lists.sizes()}
        for count, key in self.counters.sizes():
            totals[key] = totals.get(key, 0) + count
        return [(count, key) for key, count in totals.items()]

    @property
    def links(self) -> int:
        """Links between an operation and a key."""
        return self.lists.links + self.counters.links

    @property
    def keys(self) -> int:
        """Keys with a link. O(1) where there are only conditions, or only counters."""
        keys = self.lists.keys + self.counters.keys
        if self.lists.keys > 0 and self.counters.keys > 0:
            keys -= self.lists.watched_among(self.counters.sizes())
        return keys

    def statistics(self) -> PurgatoryStatistics:
        """A snapshot of the counts."""
        ledger = self.ledger
        return PurgatoryStatistics(
            pending=self.pending,
            watched=self.links,
            keys=self.keys,
            completed=ledger.completed,
            expired=ledger.expired,
            cancelled=ledger.cancelled,
            failed=ledger.failed,
            checks=ledger.checks,
            estimated_total=self.estimated_total,
            purges=self.purges,
            lateness=ledger.lateness.copy(),
            durations=ledger.durations.copy(),
        )
