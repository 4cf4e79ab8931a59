"""Which operations of a commit a database can execute together. Rank 4."""

from __future__ import annotations

from collections.abc import Sequence

from aiowheel.durable._operations import Cancel, Operation, Put, Settle


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
        name = operation.name if isinstance(operation, Put | Cancel) else ""
        if not name or type(operation) is not kind or name in names:
            kind = type(operation)
            batches.append([])
            names.clear()
        batches[-1].append(place)
        names.add(name)
    return [acknowledgements, *batches] if acknowledgements else batches
