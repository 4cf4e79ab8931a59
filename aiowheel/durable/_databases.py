"""What databases have in common: a check of the tables, operations that go together. Rank 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aiowheel.durable._operations import Cancel, Operation, Put, Settle
from aiowheel.errors import StoreVersionError

_NAMED: Final = (Put, Cancel)  # made once: `Put | Cancel` in a loop is a new object each time


def checked_tables(found: Mapping[str, int], version: int, partitions: int | None) -> int:
    """Return the partitions of a store's tables.

    Args:
        found: The version and the partitions of the tables.
        version: Of this library.
        partitions: The number that the caller wants; None for that of the tables.

    Raises:
        StoreVersionError: The tables do not fit.
    """
    if found.get("version") != version:
        raise StoreVersionError(
            f"the tables must be of version {version}, got {found.get('version')}"
        )
    if partitions not in {None, found["partitions"]}:
        raise StoreVersionError(
            f"partitions must be {found['partitions']}, as in the tables, got {partitions}"
        )
    return found["partitions"]


def is_acknowledgement(settle: Settle) -> bool:
    """Return whether a settlement just deletes the timer."""
    return settle.due_us is None and settle.error is None


def batches_of(operations: Sequence[Operation]) -> list[list[int]]:
    """Return the places of operations that can be executed together, in order of execution.

    Acknowledgements come first: callers of one commit do not know of each other. Puts and cancels
    that follow each other and have different names go together.
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
