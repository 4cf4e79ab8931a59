"""The work of the event loop per recorded operation: one row of integers. Rank 4; compiled.

Source: times are the whole nanoseconds that the purgatory keeps, keys and kinds are numbers; texts,
Arrow and disk are the work of other modules.
"""

from __future__ import annotations

from typing import Final, cast

from mypy_extensions import i64, mypyc_attr

from aiowheel.abc import FinishedOperation
from aiowheel.purgatory._operation import Operation, Outcome

from ._row_buffer import RowBuffer

#: The outcomes; a row stores the index of its outcome in this list.
OUTCOMES: Final = [Outcome.COMPLETED, Outcome.EXPIRED, Outcome.CANCELLED, Outcome.FAILED]
_COMPLETED: Final = Outcome.COMPLETED
_EXPIRED: Final = Outcome.EXPIRED
_CANCELLED: Final = Outcome.CANCELLED


class Rows:
    """The rows of a batch that are not packed yet, and the tables to which all rows refer.

    The object references no operation, and each distinct key once: keeping a million short-lived
    tuples alive until they are on disk would cost the cyclic collector more than all other work.

    Attributes:
        count: Number of rows of the batch, packed or not.
        buffer: The rows that are not packed yet. A label is 4 times the index in `kinds` plus the
            index in `OUTCOMES`.
        members: The numbers of the keys of these rows, concatenated.
        kinds: The distinct pairs of purgatory (or timer) and class (or name) of the operation.
        keys: The distinct keys; the number of a key is its index here.
    """

    __slots__ = (
        "_kind",
        "_label",
        "_labels",
        "_numbers",
        "_purgatory",
        "buffer",
        "count",
        "keys",
        "kinds",
        "members",
    )

    def __init__(self) -> None:
        self.count: i64 = 0
        self.buffer: RowBuffer = RowBuffer()
        self.members: list[object] = []  # the integer objects of `_numbers`, to avoid boxing
        self.kinds: list[tuple[str, object]] = []
        self.keys: list[object] = []
        self._numbers: dict[object, object] = {}
        # The pair of the previous row: the next row mostly has the same purgatory and kind.
        self._purgatory: object = None
        self._kind: object = None
        self._label: i64 = 0
        self._labels: dict[tuple[str, object], int] = {}

    def append(self, purgatory: str, operation: Operation) -> None:
        """Add a row for one finished operation."""
        before = len(self.members)
        try:
            completer = self._add_keys(operation.keys, operation.completed_by)
        except BaseException:  # the hash of a user's key raised: remove the incomplete row
            del self.members[before:]
            raise
        self.buffer.add(
            operation.created_ns,
            operation.deadline_ns,
            operation.finished_ns,
            self._label_of(purgatory, type(operation), operation.outcome),
            operation.checks,
            len(self.members) - before,
            completer,
        )
        self.count += 1

    def append_timer(
        self, timer: str, kind: str, created: i64, deadline: i64, finished: i64, outcome: Outcome
    ) -> None:
        """Add a row for one deadline of a timer, without keys and checks."""
        label = self._label_of(timer, kind, outcome)
        self.buffer.add(created, deadline, finished, label, 0, 0, -1)
        self.count += 1

    def clear(self) -> None:
        """Remove all rows and their keys."""
        self.count = 0
        self.buffer.clear()
        self.members.clear()
        self.keys.clear()
        self._numbers.clear()

    def _label_of(self, purgatory: str, kind: object, outcome: Outcome) -> i64:
        if kind is not self._kind or purgatory is not self._purgatory:
            self._look_up(purgatory, kind)
        return self._label + _place_of(outcome)

    def _add_keys(self, keys: tuple[object, ...], completed_by: object) -> object:
        """Add the keys of a row to `members`; return the number of the key that completed it."""
        by: object = None
        for key in keys:
            number = self._number_of(key)
            self.members.append(number)
            if key is completed_by:
                by = number
        if completed_by is None:  # no key, or the key None
            return -1
        return self._number_of(completed_by) if by is None else by

    def _number_of(self, key: object) -> object:
        number = self._numbers.get(key)
        if number is None:
            number = len(self.keys)
            self._numbers[key] = number
            self.keys.append(key)
        return number

    def _look_up(self, purgatory: str, kind: object) -> None:
        name = (purgatory, kind)
        label = self._labels.get(name)
        if label is None:
            label = 4 * len(self.kinds)
            self._labels[name] = label
            self.kinds.append(name)
        self._purgatory, self._kind, self._label = purgatory, kind, label


def _place_of(outcome: Outcome) -> i64:
    if outcome is _COMPLETED:
        return 0
    if outcome is _EXPIRED:
        return 1
    return 2 if outcome is _CANCELLED else 3


@mypyc_attr(allow_interpreted_subclasses=True)
class RowCollector:
    """The part of the recorder that runs once per operation."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        # The number of rows at which the batch needs attention: at its first row, when a part is
        # full, and when the batch is full. One comparison per row covers all three.
        self._limit: i64 = 1

    def operation_finished(self, purgatory: str, operation: FinishedOperation) -> None:
        """Record one finished operation; costs about 200 ns on the event loop, no lock, no I/O."""
        rows = self._rows
        rows.append(purgatory, cast(Operation, operation))
        if rows.count >= self._limit:
            self._reach_limit()

    def timer_finished(
        self, timer: str, kind: str, created: i64, deadline: i64, finished: i64, outcome: Outcome
    ) -> None:
        """Record one deadline of a timer; times are nanoseconds of the loop's clock."""
        rows = self._rows
        rows.append_timer(timer, kind, created, deadline, finished, outcome)
        if rows.count >= self._limit:
            self._reach_limit()

    def _reach_limit(self) -> None:
        raise NotImplementedError
