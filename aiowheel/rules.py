"""What happens at one instant: the order that replays, virtual time and Spark share. Rank 0.

A *trace* is a set of operations and a set of events with integer times in one unit. Whoever works
it off, a `Purgatory` on a manual timer, asyncio on a virtual clock, a stream or a query of Spark,
goes by these rules, so that all of them end every operation alike, at the same time, by the same
key:

1. No timeout is early: an operation expires at the first tick at or after its deadline, or at once
   if its deadline is not after its creation.
2. At one instant first the timeouts that are due run, then operations are created, then what was
   created overdue expires, then events come. So an event completes an operation only if
   ``created <= event.time < expiry``.
3. Events of one instant come in the order of their keys, as UTF-8 bytes.
4. An event is a fact of its instant, not a level: it is for the operations that wait at that time,
   and none that is created later sees it.

Ticks are multiples of the tick from time 0, which is what a wheel that starts at 0 has.
"""

from __future__ import annotations

from typing import Final, NamedTuple

#: A deadline that never comes.
NEVER: Final = 2**63 - 1
#: The threshold that any event meets, and the value of an event that has none.
NO_VALUE: Final = -(2**63)

COMPLETED: Final = "completed"
EXPIRED: Final = "expired"


class Operation(NamedTuple):
    """An operation of a trace.

    Attributes:
        id: Tells it from all others.
        keys: What it waits for, each once, at least one.
        thresholds: For each key the least value of an event that meets it, or `NO_VALUE`.
        wanted: How many of its keys must be met: 1 is "any", all of them "all".
        created: When it begins to wait.
        deadline: When its timeout is over, or `NEVER`.
    """

    id: str
    keys: tuple[str, ...]
    thresholds: tuple[int, ...]
    wanted: int
    created: int
    deadline: int


class Event(NamedTuple):
    """Something that happened to a key; its value, or `NO_VALUE`, is compared with thresholds."""

    key: str
    time: int
    value: int


class Ending(NamedTuple):
    """How an operation ended.

    Attributes:
        id: Of the operation.
        outcome: `COMPLETED` or `EXPIRED`.
        completed_by: The key that met what was still missing; None when it expired.
        at: When: the time of that event, or the expiry.
    """

    id: str
    outcome: str
    completed_by: str | None
    at: int


def expiry(created: int, deadline: int, tick: int) -> int:
    """When an operation expires: never early, and late by less than a tick (rule 1)."""
    if deadline == NEVER:
        return NEVER
    return created if deadline <= created else deadline + -deadline % tick


def in_order(operations: list[Operation], events: list[Event]) -> None:
    """Sort both lists as a replay takes them (rules 2 and 3): by time, events then by key."""
    operations.sort(key=_created)
    events.sort(key=_instant)


def _created(operation: Operation) -> int:
    return operation.created


def _instant(event: Event) -> tuple[int, str]:
    return event.time, event.key  # str compares by code point, as UTF-8 bytes do
