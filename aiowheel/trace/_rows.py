"""What the event loop pays for a recorded operation: a few appends to lists. Rank 4; compiled.

Source: one list per column, because appending is the cheapest thing the loop can do. Times are read
as the whole nanoseconds the purgatory keeps; texts, Arrow and disk are left to the writer's thread.
"""

from __future__ import annotations

from typing import Final, cast

from mypy_extensions import i64, mypyc_attr

from aiowheel._units import FOREVER
from aiowheel.abc import FinishedOperation
from aiowheel.purgatory._operation import Operation
from aiowheel.purgatory._outcome import Outcome

#: An outcome is written as its place in this list.
OUTCOMES: Final = [Outcome.COMPLETED, Outcome.EXPIRED, Outcome.CANCELLED, Outcome.FAILED]
_COMPLETED: Final = Outcome.COMPLETED
_EXPIRED: Final = Outcome.EXPIRED
_CANCELLED: Final = Outcome.CANCELLED


class Rows:
    """A batch: the newest rows as one list per column, those before as packed parts.

    Holds on to no operation, and to every key once: a million short-lived tuples kept alive until
    the disk has them would cost the cyclic collector more than all the rest, and so would lists of
    as many integers, which it walks.

    Attributes:
        first_id: The `operation_id` of row 0; it counts up by one.
        count: Whole rows, packed or not.
        parts: The packed rows, oldest first; what packs them says how they look.
        created: Nanoseconds of the loop's clock, as `finished`.
        timeouts: Nanoseconds from `created` to the deadline; FOREVER for no deadline.
        labels: 4 times the place in `kinds`, plus the place in `OUTCOMES`.
        kinds: The purgatories or timers that occur, with the classes or names of what they held.
        members: The numbers of every row's keys, end to end.
        lengths: How many of `members` each row has.
        completers: The number of the key that completed each row, or -1.
        keys: The distinct keys; a key's number is its place here.
        checks: How often each condition was asked for.
    """

    __slots__ = (
        "_kind",
        "_label",
        "_labels",
        "_numbers",
        "_purgatory",
        "_timeout",
        "_timeout_ns",
        "checks",
        "completers",
        "count",
        "created",
        "finished",
        "first_id",
        "keys",
        "kinds",
        "labels",
        "lengths",
        "members",
        "parts",
        "timeouts",
    )

    def __init__(self, first_id: int) -> None:
        self.first_id = first_id
        self.count: i64 = 0
        self.parts: list[object] = []
        self.created: list[int] = []
        self.timeouts: list[object] = []
        self.finished: list[int] = []
        self.labels: list[int] = []
        self.kinds: list[tuple[str, object]] = []
        self.members: list[object] = []  # the integers of `_numbers`: nothing is boxed again
        self.lengths: list[int] = []
        self.completers: list[object] = []
        self.keys: list[object] = []
        self.checks: list[int] = []
        self._numbers: dict[object, object] = {}
        # Of the row before: mostly the next one is of the same purgatory and kind.
        self._purgatory: object = None
        self._kind: object = None
        self._label: i64 = 0
        self._labels: dict[tuple[str, object], int] = {}
        self._timeout_ns: i64 = 0
        self._timeout: object = 0  # the same: one object for all equal timeouts

    def columns(self) -> list[list[object]]:
        """The lists of the rows not packed yet."""
        return [
            cast(list[object], self.labels),
            cast(list[object], self.created),
            self.timeouts,
            cast(list[object], self.finished),
            cast(list[object], self.checks),
            cast(list[object], self.lengths),
            self.completers,
            self.members,
        ]

    def append(self, purgatory: str, operation: Operation) -> None:
        """Note one finished operation."""
        before = len(self.members)
        try:
            self.completers.append(self._add_keys(operation.keys, operation.completed_by))
        except BaseException:  # the hash of a key is the user's code: leave no half of a row
            del self.members[before:]
            raise
        self.lengths.append(len(self.members) - before)
        self._add_times(operation._created_ns, operation._deadline_ns, operation._finished_ns)
        self.checks.append(operation._checks)
        self._add_label(purgatory, type(operation), operation._outcome)
        self.count += 1

    def append_timer(
        self, timer: str, kind: str, created: i64, deadline: i64, finished: i64, outcome: Outcome
    ) -> None:
        """Note one deadline of a timer: a row without keys and checks."""
        self.completers.append(-1)
        self.lengths.append(0)
        self._add_times(created, deadline, finished)
        self.checks.append(0)
        self._add_label(timer, kind, outcome)
        self.count += 1

    def _add_times(self, created: i64, deadline: i64, finished: i64) -> None:
        self.created.append(created)
        timeout = FOREVER if deadline >= FOREVER else deadline - created
        if timeout != self._timeout_ns:
            self._timeout_ns = timeout
            self._timeout = timeout
        self.timeouts.append(self._timeout)
        self.finished.append(finished)

    def _add_label(self, purgatory: str, kind: object, outcome: Outcome) -> None:
        if kind is not self._kind or purgatory is not self._purgatory:
            self._look_up(purgatory, kind)
        self.labels.append(self._label + _place_of(outcome))

    def _add_keys(self, keys: tuple[object, ...], completed_by: object) -> object:
        """Add a row's keys to `members`; returns the number of the key that completed it."""
        by: object = None
        for key in keys:
            number = self._number_of(key)
            self.members.append(number)
            if key is completed_by:
                by = number
        if completed_by is None:  # which is also what a key may be
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
    """The half of the recorder that runs once per operation."""

    def __init__(self) -> None:
        self._rows = Rows(0)
        # When somebody has to look: at the first row of a batch, at a part to pack, at the last
        # row. One question for all.
        self._limit: i64 = 1

    def operation_finished(self, purgatory: str, operation: FinishedOperation) -> None:
        """Note one finished operation; some 200 ns on the event loop, no lock, no I/O."""
        rows = self._rows
        rows.append(purgatory, cast(Operation, operation))
        if rows.count >= self._limit:
            self._reach_limit()

    def timer_finished(
        self, timer: str, kind: str, created: i64, deadline: i64, finished: i64, outcome: Outcome
    ) -> None:
        """Note one deadline of a timer; times in nanoseconds of the loop's clock."""
        rows = self._rows
        rows.append_timer(timer, kind, created, deadline, finished, outcome)
        if rows.count >= self._limit:
            self._reach_limit()

    def _reach_limit(self) -> None:
        raise NotImplementedError
