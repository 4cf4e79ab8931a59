"""One operation as the dashboard tells of it. Rank 4."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass

from aiowheel.purgatory._counters import ThresholdOperation
from aiowheel.purgatory._operation import Operation, PredicateOperation

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 60
_KINDS: dict[type[Operation], str] = {
    PredicateOperation: "wait_for",
    ThresholdOperation: "wait_until",
}


@dataclass(frozen=True, slots=True)
class Waiting:
    """An operation and why it waits.

    Attributes:
        operation: It.
        key: One of its keys.
        threshold: What the counter of *key* must reach; None when it waits for no counter.
        value: Where that counter stood; None when it was never advanced.
    """

    operation: Operation
    key: object
    threshold: int | float | None
    value: int | float | None

    def as_json(self, now: float) -> dict[str, object]:
        """Who, since when and until when, relative to *now*, and what for."""
        operation = self.operation
        left = operation.deadline - now
        return {
            "id": id(operation),
            "kind": kind_of(operation),
            "key": told(self.key),
            "more": len(operation.keys) - 1,
            "wants": told_number(self.threshold),
            "value": told_number(self.value),
            "checks": operation.checks,
            "age": now - operation.created,
            "left": left if left < float("inf") else None,
        }

    def as_ended(self) -> dict[str, object]:
        """Who, and how it ended."""
        operation = self.operation
        return {
            "kind": kind_of(operation),
            "key": told(self.key),
            "outcome": operation.outcome.value,
            "took": operation.finished - operation.created,
        }


def kind_of(operation: Operation) -> str:
    """What people call an operation like this."""
    return _KINDS.get(type(operation), type(operation).__name__)


def told(key: object) -> str:
    """*key* as people read it, not longer than a line."""
    if isinstance(key, str):
        return key if len(key) <= 60 else f"{key[:57]}..."
    try:
        return _REPR.repr(key)
    except Exception:  # a key's repr is its owner's code
        return f"<{type(key).__name__}>"


def told_number(number: float | None) -> str | None:
    """*number* as text: JSON has no infinity, and browsers round integers beyond 2**53."""
    if number is None:
        return None
    try:
        return told(str(number))
    except ValueError:  # Python writes none of more than 4300 digits
        return "a number too long to tell"
