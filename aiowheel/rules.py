"""The order of events at one instant, the same for every engine. Rank 0.

A *trace* is a set of operations and a set of events with integer times in one unit. A `Purgatory`
on a manual timer, asyncio on a virtual clock, a stream and a query of Spark replay a trace by these
rules, so that each operation ends in the same way, at the same time and by the same key:

1. No timeout is early: an operation expires at the first tick at or after its deadline, or at once
   if its deadline is not after its creation.
2. At one instant, first the due timeouts run, then operations are created, then operations that
   were overdue at their creation expire, then events are applied. An event therefore completes an
   operation only if ``created <= event.time < expiry``.
3. Events of one instant are applied in the order of their keys, as UTF-8 bytes.
4. An event has no duration: it can complete operations that are pending at its time, but no
   operation that is created later.

Ticks are multiples of the tick from time 0, as on a wheel that starts at 0.
"""

from __future__ import annotations

from typing import Final, NamedTuple

#: A deadline that never comes.
NEVER: Final = 2**63 - 1
#: The threshold that any event meets, and the value of an event without a value.
NO_VALUE: Final = -(2**63)

COMPLETED: Final = "completed"
EXPIRED: Final = "expired"


class Operation(NamedTuple):
    """An operation of a trace.

    Attributes:
        id: The operation's name, unique in the trace.
        keys: The keys that it waits for, each once, at least one.
        thresholds: For each key, the least value of an event that meets the key, or `NO_VALUE`.
        wanted: The number of keys that must be met: 1 is "any", the number of all keys is "all".
        created: The time at which the operation begins to wait.
        deadline: The time at which its timeout ends, or `NEVER`.
    """

    id: str
    keys: tuple[str, ...]
    thresholds: tuple[int, ...]
    wanted: int
    created: int
    deadline: int


class Event(NamedTuple):
    """An event of a key; its value, or `NO_VALUE`, is compared with thresholds."""

    key: str
    time: int
    value: int


class Ending(NamedTuple):
    """The end of an operation.

    Attributes:
        id: The name of the operation.
        outcome: `COMPLETED` or `EXPIRED`.
        completed_by: The key that was met last; None if the operation expired.
        at: The time of the event that completed the operation, or of the expiry.
    """

    id: str
    outcome: str
    completed_by: str | None
    at: int


def expiry(created: int, deadline: int, tick: int) -> int:
    """Return when an operation expires: never early, and late by less than a tick (rule 1)."""
    if deadline == NEVER:
        return NEVER
    return created if deadline <= created else deadline + -deadline % tick


def in_order(operations: list[Operation], events: list[Event]) -> None:
    """Sort both lists for a replay (rules 2 and 3): by time, and events of one time by key."""
    operations.sort(key=_created)
    events.sort(key=_instant)


def _created(operation: Operation) -> int:
    return operation.created


def _instant(event: Event) -> tuple[int, str]:
    return event.time, event.key  # str compares by code point, as UTF-8 bytes do
