"""Functions that all databases share: a check of the tables, and batches of operations. Rank 4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from aiowheel.durable._operations import Cancel, Operation, Put, Settle
from aiowheel.errors import StoreVersionError

_NAMED: Final = (Put, Cancel)  # made once: `Put | Cancel` in a loop is a new object each time


def checked_tables(found: Mapping[str, int], version: int, partitions: int | None) -> int:
    """Return the partitions of a store's tables.

    Args:
        found: The version and the number of partitions of the tables.
        version: The version of the tables that this library uses.
        partitions: The number that the caller requests; None for the number of the tables.

    Raises:
        StoreVersionError: The version or the number of partitions differs.
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


def missing_partitions(found: Iterable[int], partitions: int) -> list[str]:
    """Return a line of text for each partition without a row in the table of partitions."""
    missing = sorted(set(range(partitions)).difference(found))
    return [
        f"partition {part} is missing in aiowheel_parts: no process owns it" for part in missing
    ]


def is_acknowledgement(settle: Settle) -> bool:
    """Return whether a settlement only deletes the timer."""
    return settle.due_us is None and settle.error is None


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
