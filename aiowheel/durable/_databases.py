"""Functions that all databases share: checks of the tables, and batches of operations. Rank 4."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from math import ceil
from typing import Any, Final

from aiowheel._arguments import checked_int, safe_repr
from aiowheel.durable._instants import FIRST_US, LAST_US
from aiowheel.durable._recurrence import recurrence_from
from aiowheel.durable.operations import (
    UNREAD,
    Cancel,
    Operation,
    Put,
    Result,
    Row,
    Settle,
    part_of,
)
from aiowheel.errors import MissingExtraError, StoreVersionError

MOST_PARTITIONS: Final = 1024
#: A list of timers or dead letters ends once its payloads have so many bytes.
PAGE_BYTES: Final = 2**22

_NAMED: Final = (Put, Cancel)  # made once: `Put | Cancel` in a loop is a new object each time


def checked_partitions(partitions: object) -> int | None:
    """Return the argument of a store, which may be None.

    Raises:
        TypeError, ValueError: It is no legal number of partitions.
    """
    return None if partitions is None else checked_int("partitions", partitions, 1, MOST_PARTITIONS)


def checked_tables(found: Mapping[str, int], version: int, partitions: int | None) -> int:
    """Return the partitions of a store's tables.

    Args:
        found: The version and the number of partitions of the tables.
        version: The version of the tables that this library uses.
        partitions: The number that the caller requests; None for the number of the tables.

    Raises:
        StoreVersionError: The version or the number of partitions differs, or is no such number.
    """
    given = found.get("version")
    if given != version:
        is_newer = isinstance(given, int) and given > version
        advice = "update aiowheel" if is_newer else "use the release that made them"
        raise StoreVersionError(
            f"the tables must be of version {version}, got {given}: {advice}, or drop the tables"
        )
    stored = found.get("partitions")
    if not isinstance(stored, int) or not 1 <= stored <= MOST_PARTITIONS:
        raise StoreVersionError(
            f"the tables must have from 1 to {MOST_PARTITIONS} partitions, got {stored!r}"
        )
    if partitions not in {None, stored}:
        raise StoreVersionError(f"partitions must be {stored}, as in the tables, got {partitions}")
    return stored


def flaws_of(row: Sequence[Any], partitions: int) -> list[str]:
    """Return a line of text for each flaw of one timer; *row* has the columns of a `Row`."""
    _, name, handler, part, due_us, gen, attempt, recurrence, first_due_us, fire_id, payload = row
    if not isinstance(name, str) or not name:
        return [f"a timer has the name {name!r}: no command and no process finds it"]
    flaws: list[str] = []
    if part != part_of(name, partitions):
        right = part_of(name, partitions)
        flaws.append(f"timer {name!r} is in partition {part}, not in {right}")
    first_us = due_us if first_due_us is None else first_due_us
    flaws += [
        f"timer {name!r} is due at {us!r}, not in the years 1 to 9999"
        for us in dict.fromkeys((due_us, first_us))
        if not _is_instant(us)
    ]
    for column, value, kind in (
        ("gen", gen, int),
        ("attempt", attempt, int),
        ("handler", handler, str),
        ("payload", payload, bytes),
        ("fire_id", fire_id or "", str),
    ):
        if not isinstance(value, kind):
            flaws.append(
                f"timer {name!r} has the {column} {safe_repr(value)}, which is no {kind.__name__}"
            )
    if recurrence is not None:
        try:
            recurrence_from(str(recurrence))
        except MissingExtraError:  # cron cannot be read on this machine
            pass
        except Exception as error:
            flaws.append(f"timer {name!r} has the recurrence {recurrence!r}: {error}")
    return flaws


def _is_instant(us: object) -> bool:
    return isinstance(us, int) and FIRST_US <= us <= LAST_US


def missing_parts(
    wanted: Iterable[tuple[str, str]], found: Container[tuple[str, str]]
) -> list[str]:
    """Return a line of text for each column and index of a table that is not *found*."""
    return [f"{table} has no {part}" for table, part in wanted if (table, part) not in found]


def missing_partitions(found: Iterable[int], partitions: int) -> list[str]:
    """Return a line of text for each partition without a row in the table of partitions."""
    missing = sorted(set(range(partitions)).difference(found))
    return [
        f"partition {part} is missing in aiowheel_parts: no process owns it" for part in missing
    ]


def distributed(
    parts: Sequence[Sequence[Any]], members: int, owner: str, now_us: int, give_up: Collection[int]
) -> tuple[dict[int, int], int, int | None, list[int]]:
    """Return the partitions of *owner* after its renewal; see `Store.renew`.

    Args:
        parts: Number, owner, epoch and end of the lease of each partition.
        members: The number of owners, with this one.
        owner: The owner that renews.
        now_us: The store's time.
        give_up: The partitions that it releases.

    Returns:
        The first three fields after the clock of `Leased`, and the partitions that are gained.
    """
    share = ceil(len(parts) / members)
    epochs: dict[int, int] = {
        part: epoch for part, other, epoch, _ in parts if other == owner and part not in give_up
    }
    gained: list[int] = []
    expiry: int | None = None
    for part, other, epoch, until_us in parts:
        if other == owner:
            continue
        is_free = (not other or until_us < now_us) and part not in give_up
        if is_free and len(epochs) < share:
            epochs[part] = epoch + 1
            gained.append(part)
        elif other:
            expiry = until_us if expiry is None else min(expiry, until_us)
    return epochs, share, expiry, gained


def window_row(columns: Sequence[Any]) -> Row:
    """Return a row for the window; in *columns*, NULL stands for a large payload."""
    *others, payload = columns
    return Row._make([*others, UNREAD if payload is None else payload])


def is_acknowledgement(settle: Settle) -> bool:
    """Return whether a settlement only deletes the timer."""
    return settle.due_us is None and settle.error is None


def answers_of(
    settles: Iterable[Settle], stale: Iterable[bool], deleted: Container[tuple[int, int, str]]
) -> list[Result]:
    """Return the results of acknowledgements.

    Args:
        settles: The acknowledgements.
        stale: Whether each of them has another epoch than its partition.
        deleted: Id, generation and name of the timers that they have deleted; two generations of
            one timer may end in one commit.
    """
    return [
        "stale" if is_stale else "done" if (each.id, each.gen, each.name) in deleted else "gone"
        for each, is_stale in zip(settles, stale, strict=True)
    ]


def batches_of(operations: Sequence[Operation]) -> list[list[int]]:
    """Return the indexes of operations in batches, in the order of execution.

    Acknowledgements form the first batch: they are independent of the other calls in the commit.
    Adjacent puts with different names form a batch, and so do adjacent cancels.
    """
    acknowledgements: list[int] = []
    batches: list[list[int]] = []
    names: set[str] = set()
    kind: type[object] = object
    for place, operation in enumerate(operations):
        if isinstance(operation, Settle) and is_acknowledgement(operation):
            acknowledgements.append(place)
            continue
        name = operation.name if isinstance(operation, _NAMED) else ""
        if not name or type(operation) is not kind or name in names:
            kind = type(operation)
            batches.append([])
            names.clear()
        batches[-1].append(place)
        names.add(name)
    return [acknowledgements, *batches] if acknowledgements else batches
