"""A purgatory in virtual time, over any part of a trace. Rank 5: no Spark here.

It runs `aiowheel.Purgatory` on a `ManualTimer`: one shard over the whole trace is the replay in one
process; many shards whose state is saved between micro-batches are the stream on Spark.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aiowheel.abc import FinishedOperation, Instrument
from aiowheel.purgatory import Outcome, Purgatory
from aiowheel.purgatory._counters import ThresholdOperation
from aiowheel.rules import COMPLETED, EXPIRED, NEVER, Ending, Event, Operation, expiry, in_order
from aiowheel.timer import ManualTimer

_LEAST_TICK_NS: Final = 1_000  # the least tick of a timer
_REACH_NS: Final = 2**60  # a timer beyond it is replaced, because its clock ends at 2**61
_EXACT_NS: Final = 2**50  # below it, a conversion to float seconds and back is exact

LONGEST_TICK: Final = 3_600_000_000_000  # units; at one nanosecond per unit, a timer's maximum


class Shard:
    """A purgatory that takes rows in any order and ends operations by `aiowheel.rules`.

    `feed` only stores rows; `settle` processes those at or before a *frontier*. The caller
    guarantees that no row at or before the frontier comes later. The outcomes do not depend on how
    the trace is divided.

    Args:
        tick: The tick of the wheel, in the unit of the trace, from 1 to `LONGEST_TICK`.
        frontier: The time up to which the trace has been settled already.

    Attributes:
        frontier: The time up to which the trace has been settled.
        operations: The stored operations, created after the frontier.
        events: The stored events, after the frontier.
        unmet: The operations that the last `settle` completed before all of their keys were met.

    Raises:
        ValueError: *tick* is out of range.

    Cost: about ten microseconds a row.
    """

    def __init__(self, tick: int, frontier: int = -1) -> None:
        if not 1 <= tick <= LONGEST_TICK:
            raise ValueError(f"tick must be from 1 to {LONGEST_TICK}, got {tick}")
        self.tick = tick
        self.frontier: int = frontier
        self.operations: list[Operation] = []
        self.events: list[Event] = []
        self.unmet: list[Operation] = []
        # Nanoseconds of the timer per unit, because a timer's tick is at least a microsecond.
        self._unit_ns = -(-_LEAST_TICK_NS // tick)
        self._last_expiry = frontier  # the latest expiry of all operations so far
        self._begin_at(frontier)

    def _begin_at(self, now: int) -> None:
        """Start a timer whose zero is a multiple of the tick, and advance it to *now*."""
        self._origin = now - now % self.tick
        self._now = self._origin
        self._ledger = _Ledger(self._origin, self._unit_ns)
        self._timer = ManualTimer(tick=self.tick * self._unit_ns / 1e9)
        self._purgatory = Purgatory("trace", timer=self._timer, instruments=(self._ledger,))
        self._advance(now)

    # --- the trace --------------------------------------------------------------------------

    def feed(self, operations: Iterable[Operation], events: Iterable[Event]) -> None:
        """Store rows; each must be later than the frontier, because settled times are final."""
        self.operations.extend(operations)
        self.events.extend(events)

    def settle(self, frontier: int) -> list[Ending]:
        """Process all rows up to and including *frontier*; return the endings in their order."""
        if frontier > self.frontier:
            self._replay(*self._take(frontier))
            # Nothing happens after the last expiry, so the clock need not advance to a distant
            # frontier.
            self._advance(max(self._now, min(frontier, self._last_expiry)))
            self.frontier = frontier
        endings, self._ledger.endings = self._ledger.endings, []
        self.unmet, self._ledger.unmet = self._ledger.unmet, []
        return endings

    def waiting(self) -> list[Operation]:
        """Return the pending operations, with the keys, thresholds and count still missing."""
        return [_remainder(resident, row) for resident, row in self._ledger.rows.items()]

    def resume(self, waiting: Iterable[Operation]) -> None:
        """Restore pending operations returned by `waiting`, at the same frontier."""
        for operation in waiting:
            # Uses the expiry: between its deadline and the tick of its expiry it is not overdue
            # yet.
            self._admit(operation, expiry(operation.created, operation.deadline, self.tick))

    def __len__(self) -> int:
        """The number of pending and stored operations."""
        return len(self._ledger.rows) + len(self.operations)

    def _take(self, frontier: int) -> tuple[list[Operation], list[Event]]:
        operations = [row for row in self.operations if row.created <= frontier]
        events = [row for row in self.events if row.time <= frontier]
        self.operations = [row for row in self.operations if row.created > frontier]
        self.events = [row for row in self.events if row.time > frontier]
        in_order(operations, events)
        return operations, events

    def _replay(self, operations: list[Operation], events: list[Event]) -> None:
        place, count = 0, len(operations)
        for event in events:
            while place < count and operations[place].created <= event.time:
                place = self._create(operations, place)
            if self._purgatory.waiters(event.key):
                self._advance(event.time)
                self._purgatory.advance(event.key, event.value)
                self._purgatory.forget(event.key)  # an event counts only at its instant
        while place < count:
            place = self._create(operations, place)

    def _create(self, operations: list[Operation], place: int) -> int:
        """Create all operations of one instant; return the index of the next operation."""
        now = operations[place].created
        self._advance(now)
        overdue = False
        while place < len(operations) and operations[place].created == now:
            overdue |= operations[place].deadline <= now
            self._admit(operations[place], operations[place].deadline)
            place += 1
        if overdue:
            self._timer.advance(0)
        return place

    def _admit(self, operation: Operation, deadline: int) -> None:
        resident = ThresholdOperation(0, operation.wanted)
        # A deadline beyond this timer is armed again on the next timer. The distance of a past
        # deadline has no effect and may exceed the timer's range, so it becomes 0.
        timeout_ns = max(0, deadline - self._now) * self._unit_ns
        resident.set_timeout_ns(min(timeout_ns, 2 * _REACH_NS))
        self._ledger.rows[resident] = operation
        wanted: list[tuple[object, int | float]]
        wanted = [*zip(operation.keys, operation.thresholds, strict=True)]
        self._purgatory.try_reach_else_watch(resident, wanted)
        if operation.deadline != NEVER:
            end = expiry(operation.created, operation.deadline, self.tick)
            self._last_expiry = max(self._last_expiry, end)

    # --- its time ---------------------------------------------------------------------------

    def _advance(self, now: int) -> None:
        """Advance the clock to *now*; every timeout before it runs at its own tick."""
        if not self._ledger.rows and (now - self._now) * self._unit_ns > _EXACT_NS:
            self._rebase(now)  # without pending operations nothing happens before *now*
        while self._now != now:
            step = min(now - self._now, _REACH_NS // 2 // self._unit_ns)
            self._now += step
            self._ledger.now = self._now
            step_ns = step * self._unit_ns
            if step_ns > _EXACT_NS:
                seconds, step_ns = divmod(step_ns, 1_000_000_000)
                self._timer.advance(seconds)
            self._timer.advance(step_ns / 1e9)
            if (self._now - self._origin) * self._unit_ns > _REACH_NS:
                self._rebase(self._now)

    def _rebase(self, now: int) -> None:
        """Replace the timer before its clock ends."""
        endings, unmet, waiting = self._ledger.endings, self._ledger.unmet, self.waiting()
        self._ledger.rows = {}
        self._begin_at(now)
        self._ledger.endings, self._ledger.unmet = endings, unmet
        self.resume(waiting)


class _Ledger(Instrument):
    """The record of pending and ended operations; it outlives the timer and its purgatory.

    Args:
        origin: The time at which the timer's clock was 0.
        unit_ns: Nanoseconds of the timer's clock per unit of the trace.
    """

    def __init__(self, origin: int, unit_ns: int) -> None:
        self.rows: dict[FinishedOperation, Operation] = {}
        self.endings: list[Ending] = []
        self.unmet: list[Operation] = []
        self.now = origin
        self._origin = origin
        self._unit_ns = unit_ns

    def operation_finished(self, purgatory: str, operation: FinishedOperation) -> None:  # noqa: ARG002
        """Record how an operation ended; ignores those cancelled with a replaced timer."""
        if operation.outcome is Outcome.COMPLETED:
            row = self.rows.pop(operation)
            self.endings.append(Ending(row.id, COMPLETED, str(operation.completed_by), self.now))
            if row.wanted < len(row.keys):
                self.unmet.append(row)
        elif operation.outcome is Outcome.EXPIRED and isinstance(operation, ThresholdOperation):
            row = self.rows.pop(operation)
            at = self._origin + int(operation.finished_ns) // self._unit_ns
            self.endings.append(Ending(row.id, EXPIRED, None, at))


def _remainder(resident: FinishedOperation, row: Operation) -> Operation:
    """Return the part of *row* that is still missing."""
    if not isinstance(resident, ThresholdOperation):
        raise TypeError(resident)
    missing = {link.counter.key for link in resident.waiting if link.operation is not None}
    kept = [pair for pair in zip(row.keys, row.thresholds, strict=True) if pair[0] in missing]
    return row._replace(
        keys=tuple(key for key, _ in kept),
        thresholds=tuple(least for _, least in kept),
        wanted=int(resident.wanted),
    )
