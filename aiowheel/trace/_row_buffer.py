"""Rows of integers in one block of memory. Rank 4; compiled.

Source: integers in lists are objects scattered over memory, and reading them later costs more than
creating them; here an integer object lives only until it is packed into the block.
"""

from __future__ import annotations

import struct
from typing import Final

from mypy_extensions import i64

#: Rows that are packed together; packing them takes about 0.2 ms of the event loop.
ROWS_PER_PART: Final = 4_096

_ROW: Final = struct.Struct("3n4i")  # "q" instead of "n" takes three times as long
_ROW_BYTES: Final = 40
_write_one: Final = _ROW.pack_into
_write_two: Final = struct.Struct("3n4i3n4i").pack_into
_MOST_CHECKS: Final = 2**31 - 1


class RowBuffer:
    """A buffer of `ROWS_PER_PART` rows; a full buffer must be cleared before the next row.

    A row is three integers of 64 bits and four of 32:

    - created, deadline, finished: nanoseconds of the loop's clock; FOREVER for no deadline.
    - label: the kind of the operation and its outcome, see `Rows`.
    - checks: the number of calls to the operation's condition.
    - length: the number of its keys.
    - completer: the number of the key that completed it, or -1.

    Rows are packed two at a time, because a call costs more than packing its integers: the first
    row of a pair is held in fields.
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
        self._waiting = False  # whether the following fields hold a row
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
        """Write a row; a number of checks beyond 32 bits is stored as the greatest one."""
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
        """The rows so far; the view is valid until the next row is written."""
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
        """Remove all rows."""
        self._waiting = False
        self._end = 0
