"""The JSON of a pending operation for the dashboard. Rank 4.

The texts of keys have no lone surrogates: the page asks for the operations of a key by its text,
and browsers replace a lone surrogate in a query.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiowheel._arguments import safe_repr
from aiowheel._printable import as_unicode, cut
from aiowheel.purgatory._counters import ThresholdOperation
from aiowheel.purgatory._operation import Operation, PredicateOperation

#: A JSON object.
Json: TypeAlias = dict[str, Any]

_MOST_KEYS = 20  # maximum keys of one operation in the detailed view
_LINE = 60  # maximum characters of a key in a table
_PARAGRAPH = 1_000  # maximum characters of a key or an operation in the detailed view
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _LINE
_KINDS: dict[type[Operation], str] = {
    PredicateOperation: "wait_for",
    ThresholdOperation: "wait_until",
}


@dataclass(slots=True)  # not frozen: a frozen one takes three times as long to make
class Waiting:
    """A pending operation, and one key that it waits for.

    Attributes:
        operation: The operation.
        key: One of its keys.
        threshold: Value that the counter of *key* must reach; None if it waits for no counter.
        value: Value of the counter; None if the counter was never advanced.
    """

    operation: Operation
    key: object
    threshold: int | float | None
    value: int | float | None

    def as_json(self, now: float) -> Json:
        """Return the kind of the operation, its times relative to *now*, and its condition."""
        operation = self.operation
        left = operation.deadline - now
        return {
            "id": id(operation),
            "kind": kind_of(operation),
            "key": text_of(self.key),
            "more": len(operation.keys) - 1,
            "wants": number_text(self.threshold),
            "value": number_text(self.value),
            "checks": operation.checks,
            "age": now - operation.created,
            "left": left if left < float("inf") else None,
        }

    def as_details(self, now: float) -> Json:
        """Return `as_json` with all keys and the `repr` of the operation, even if that raises."""
        keys = self.operation.keys
        return {
            **self.as_json(now),
            "keys": [long_text_of(key) for key in keys[:_MOST_KEYS]],
            "text": safe_repr(self.operation)[:_PARAGRAPH],
        }

    def as_ended(self) -> Json:
        """Return the outcome of the operation, its end and its duration."""
        operation = self.operation
        return {
            "kind": kind_of(operation),
            "key": text_of(self.key),
            "outcome": operation.outcome.value,
            "took": operation.finished - operation.created,
            "at": operation.finished,
        }


def kind_of(operation: Operation) -> str:
    """Return the name of the method that created the operation, or of its class."""
    return _KINDS.get(type(operation), type(operation).__name__)


def text_of(key: object) -> str:
    """Return a printable form of *key*, cut to the width of a table column."""
    if isinstance(key, str):
        return cut(as_unicode(key), _LINE)
    try:
        return as_unicode(_REPR.repr(key))
    except Exception:  # the key's `repr` is code of the application
        return f"<{type(key).__name__}>"


def long_text_of(key: object) -> str:
    """Return a printable form of *key*, cut to a thousand characters."""
    return as_unicode(key if isinstance(key, str) else safe_repr(key))[:_PARAGRAPH]


def number_text(number: float | None) -> str | None:
    """Return *number* as text: JSON has no infinity, and browsers round integers beyond 2**53."""
    if number is None:
        return None
    try:
        return text_of(str(number))
    except ValueError:  # Python converts no integer of more than 4300 digits
        return "a number too long to show"
