"""Rows of integers in one piece of memory. Rank 4; compiled.

Source: integers kept in lists are objects all over memory, which cost more to come back to than to
make; here they live no longer than it takes to write them down.
"""

from __future__ import annotations

import struct
from typing import Final

from mypy_extensions import i64

#: Rows that are packed together: some 0.2 ms of the event loop.
ROWS_PER_PART: Final = 4_096

_ROW: Final = struct.Struct("3n4i")  # "n" and not "q", which takes three times as long
_ROW_BYTES: Final = 40
_write_one: Final = _ROW.pack_into
_write_two: Final = struct.Struct("3n4i3n4i").pack_into
_MOST_CHECKS: Final = 2**31 - 1


class RowBuffer:
    """`ROWS_PER_PART` rows; full, it has to be cleared before the next is written.

    A row is three integers of 64 bits and four of 32:

    - created, deadline, finished: nanoseconds of the loop's clock; FOREVER for no deadline.
    - label: what it was and how it ended, see `Rows`.
    - checks: how often the condition was asked for.
    - length: how many keys it has.
    - completer: the number of the key that completed it, or -1.

    Rows are written two at a time, for a call costs more than its integers: the first waits in
    fields of its own.
    """

    __slots__ = (
        "_bytes",
        "_checks",
        "_completer",
        "_created",
        "_deadline",
        "_end",
        "_finished",
        "_label",
        "_length",
        "_waiting",
    )

    def __init__(self) -> None:
        self._bytes = bytearray(ROWS_PER_PART * _ROW_BYTES)
        self._end: i64 = 0
        self._waiting = False  # a row, in what follows
        self._created: i64 = 0
        self._deadline: i64 = 0
        self._finished: i64 = 0
        self._label: i64 = 0
        self._checks: i64 = 0
        self._length: i64 = 0
        self._completer: object = None

    def add(
        self,
        created: i64,
        deadline: i64,
        finished: i64,
        label: i64,
        checks: i64,
        length: i64,
        completer: object,
    ) -> None:
        """Write a row; more checks than 32 bits hold become as many as they do."""
        checks = min(checks, _MOST_CHECKS)
        if not self._waiting:
            self._created, self._deadline, self._finished = created, deadline, finished
            self._label, self._checks, self._length = label, checks, length
            self._completer = completer
            self._waiting = True
            return
        _write_two(
            self._bytes,
            self._end,
            self._created,
            self._deadline,
            self._finished,
            self._label,
            self._checks,
            self._length,
            self._completer,
            created,
            deadline,
            finished,
            label,
            checks,
            length,
            completer,
        )
        self._waiting = False
        self._end += 2 * _ROW_BYTES

    def rows(self) -> memoryview:
        """The rows so far; good until the next is written."""
        if self._waiting:
            _write_one(
                self._bytes,
                self._end,
                self._created,
                self._deadline,
                self._finished,
                self._label,
                self._checks,
                self._length,
                self._completer,
            )
            self._waiting = False
            self._end += _ROW_BYTES
        return memoryview(self._bytes)[: self._end]

    def clear(self) -> None:
        """Make room for others."""
        self._waiting = False
        self._end = 0
