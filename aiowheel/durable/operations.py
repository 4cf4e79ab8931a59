"""The types that `DurableTimers` and a store exchange: rows, operations and results. Rank 4.

Times are whole microseconds since 1970 on the store's clock. A store executes a list of operations
in one transaction and returns one result for each, in the same order.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, TypeVar
from zlib import crc32

from aiowheel.durable._instants import to_datetime

__all__ = (
    "LARGE_PAYLOAD",
    "UNREAD",
    "Cancel",
    "Change",
    "Cursor",
    "DeadLetter",
    "IfExists",
    "Leased",
    "Move",
    "Operation",
    "Placed",
    "Put",
    "Redrive",
    "Removed",
    "Result",
    "Row",
    "Settle",
    "Settled",
    "Summary",
    "part_of",
    "second_name",
)

T = TypeVar("T", bound=tuple[object, ...])

if TYPE_CHECKING:

    def made(kind: type[T], fields: tuple[object, ...]) -> T:
        """Return a named tuple of all *fields*, in half the time that a call of *kind* takes."""
        ...
else:
    made = tuple.__new__

#: What `Put` does if a timer has the name already. "revise" replaces the timer only if its handler,
#: recurrence or payload differs; recurring timers use it.
IfExists: TypeAlias = Literal["replace", "keep", "error", "revise"]

#: The longest name and handler name, in characters.
LONGEST_NAME: Final = 500
#: The largest payload, in bytes.
LARGEST_PAYLOAD: Final = 16 * 2**20
#: A payload with more bytes is not in memory before its timer is due.
LARGE_PAYLOAD: Final = 4096


class Row(NamedTuple):
    """One pending timer, as a store keeps it.

    Attributes:
        id: The number of the timer, never used again for another one.
        name: Unique among the pending timers.
        handler: The name of the function to call.
        part: The partition; see `part_of`.
        due_us: When to fire next.
        gen: Counts the fires that this row has stood for; `(id, gen)` identifies a fire.
        attempt: Attempts of this fire that have failed.
        recurrence: The recurrence as text, None for a timer that fires once.
        first_due_us: When the fire was due before it was retried; None if it was not retried.
        fire_id: The identity of a fire that was redriven; None for `id.gen`.
        payload: The user's bytes.
    """

    id: int
    name: str
    handler: str
    part: int
    due_us: int
    gen: int
    attempt: int
    recurrence: str | None
    first_due_us: int | None
    fire_id: str | None
    payload: bytes

    def identity(self) -> str:
        """Return the stable identity of the fire."""
        return self.fire_id or f"{self.id}.{self.gen}"

    @property
    def due(self) -> datetime:
        """When to fire next, in UTC."""
        return to_datetime(self.due_us)


class _Unread(bytes):
    """The type of `UNREAD`, which only identity tells from other empty bytes."""


#: The payload of a row in memory whose payload is in the store.
UNREAD: Final[bytes] = _Unread()


class DeadLetter(NamedTuple):
    """One fire whose attempts have all failed.

    Attributes:
        id: The number of the dead letter.
        name: The name of the timer.
        handler: The name of the function that failed.
        due_us: When the fire was due.
        fire_id: The identity of the fire; a redriven fire keeps it.
        attempts: How many attempts have failed.
        died_us: When the last attempt failed.
        error: The last error, as one line of text.
        payload: The user's bytes.
    """

    id: int
    name: str
    handler: str
    due_us: int
    fire_id: str
    attempts: int
    died_us: int
    error: str
    payload: bytes

    @property
    def due(self) -> datetime:
        """When the fire was due, in UTC."""
        return to_datetime(self.due_us)


# --- operations -------------------------------------------------------------------------------


class Put(NamedTuple):
    """Write a timer. Result: `Placed`, or None if a timer of that name was kept."""

    name: str
    handler: str
    due_us: int
    payload: bytes
    recurrence: str | None = None
    if_exists: IfExists = "replace"


class Cancel(NamedTuple):
    """Delete the timer of that name. Result: `Removed`, or None if there is none."""

    name: str


class Move(NamedTuple):
    """Give the timer of that name another due time. Result: `Placed`, or None if there is none."""

    name: str
    due_us: int


class Settle(NamedTuple):
    """End one attempt. Result: a value of `Settled`.

    The row is deleted, or changed if *due_us* is not None. If *error* is not None, the row is
    copied to the dead letters before, as due at *dead_due_us* or, if that is None, as due at its
    own time. Nothing happens if the row of that name has another id or generation, or if the
    partition has another epoch.
    """

    id: int
    name: str
    gen: int
    part: int
    epoch: int
    due_us: int | None = None
    next_gen: int = 0
    next_attempt: int = 0
    first_due_us: int | None = None
    error: str | None = None
    attempts: int = 0
    dead_due_us: int | None = None


class Redrive(NamedTuple):
    """Make a dead letter a timer again, due now. Result: `Placed`, or None if there is none.

    If a timer has its name already, the new timer gets the name of `second_name`. If a timer has
    that name as well, the result is `TimerExistsError`, and the dead letter stays.
    """

    dead_id: int


Operation: TypeAlias = Put | Cancel | Move | Settle | Redrive


# --- results ----------------------------------------------------------------------------------


class Placed(NamedTuple):
    """A row was written.

    Attributes:
        row: The row as it was written.
        is_new: Whether there was no timer of that name.
    """

    row: Row
    is_new: bool


class Removed(NamedTuple):
    """A row was deleted.

    Attributes:
        id: The id of the row.
        gen: The generation of the row.
        due_us: When the timer was due.
        is_final: Whether no other process can fire the timer: its partition has no owner, or the
            owner reads the change before the timer is due.
    """

    id: int
    gen: int
    due_us: int
    is_final: bool


#: "done": settled; "gone": no row has that name, id and generation; "stale": refused, because the
#: partition has another epoch.
Settled: TypeAlias = Literal["done", "gone", "stale"]

#: An exception is the result of an operation that failed alone; the other operations succeeded.
Result: TypeAlias = Placed | Removed | Settled | Exception | None


class Change(NamedTuple):
    """A timer that another process has changed.

    *row* is None if the timer was deleted, and may be None if it is due beyond the horizon of the
    owner of its partition.
    """

    id: int
    row: Row | None


class Leased(NamedTuple):
    """The answer to `Store.renew`.

    Attributes:
        now_us: The store's clock at the end of the call.
        epochs: The epochs of the partitions that the caller owns, by partition.
        share: The number of partitions that the caller should own.
        next_expiry_us: When the next lease of another owner ends; None if no other owner has one.
        changes: Changes that other processes made in the caller's partitions.
    """

    now_us: int
    epochs: dict[int, int]
    share: int
    next_expiry_us: int | None
    changes: list[Change]


class Cursor(NamedTuple):
    """A position in one partition: after the row *id* that is due at *due_us*."""

    part: int
    due_us: int
    id: int


class Summary(NamedTuple):
    """Counts of a store.

    Attributes:
        pending: Timers.
        overdue: Timers that are due.
        dead: Dead letters.
        owners: The number of partitions by owner; "" for partitions without an owner.
        hours: Timers that are due in each of the next 24 hours; overdue timers count in the first.
    """

    pending: int
    overdue: int
    dead: int
    owners: dict[str, int]
    hours: list[int]


def part_of(name: str, partitions: int) -> int:
    """Return the partition of a name; every process and every version return the same one."""
    return crc32(name.encode()) % partitions


def second_name(dead: DeadLetter) -> str:
    """Return the name of a redriven timer whose own name is taken; no name is too long."""
    mark = f"#{dead.fire_id}"
    return dead.name[: LONGEST_NAME - len(mark)] + mark


def row_of(put: Put, timer: int, gen: int, part: int) -> Row:
    """Return the row that *put* writes in *part*, for the timer of that number and generation."""
    name, handler, due_us, payload, recurrence, _ = put
    fields = (timer, name, handler, part, due_us, gen, 0, recurrence, None, None, payload)
    return made(Row, fields)


def without_large_payload(row: Row) -> Row:
    """Return *row*, with `UNREAD` in place of a large payload."""
    return row._replace(payload=UNREAD) if len(row.payload) > LARGE_PAYLOAD else row


def settled_row(row: Row, settle: Settle, due_us: int) -> Row:
    """Return *row* after a settlement that makes the timer due again, at *due_us*."""
    return row._replace(
        due_us=due_us,
        gen=settle.next_gen,
        attempt=settle.next_attempt,
        first_due_us=settle.first_due_us,
        fire_id=row.fire_id if settle.next_gen == row.gen else None,
    )
