"""A batch of rows on the way from the event loop to the disk. Rank 4.

Source: the columns of `schema`. The event loop packs parts of the batch while the integers are
still in the CPU cache; the writer's thread converts texts and writes Parquet.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aiowheel._printable import as_unicode
from aiowheel._units import FOREVER
from aiowheel.trace._rows import OUTCOMES, Rows
from aiowheel.trace.schema import TRACE_SCHEMA

_EXPIRED: Final = 1  # its index in OUTCOMES
_TEXTS: Final = pa.dictionary(pa.int32(), pa.string())
_KEYS: Final = pa.list_(pa.field("element", _TEXTS, nullable=False))

#: As `TRACE_SCHEMA`, but keys are numbers. The Parquet file stores dictionary numbers anyway: from
#: texts, the writer would first have to look up each of them.
BATCH_SCHEMA: Final = pa.schema(
    [
        field.with_type({"keys": _KEYS, "completed_by": _TEXTS}.get(field.name, field.type))
        for field in TRACE_SCHEMA
    ]
)

_ROW: Final = np.dtype(
    [(name, np.int64) for name in ("created", "deadline", "finished")]
    + [(name, np.int32) for name in ("label", "checks", "length", "completer")]
)
_Integers = npt.NDArray[np.integer[Any]]


class Batch:
    """The rows of one row group: the newest in a buffer, the older ones as Arrow columns.

    Attributes:
        rows: The buffer into which the event loop writes a row.
    """

    def __init__(self, first_id: int, epoch_offset_ns: int) -> None:
        """Create an empty batch.

        Args:
            first_id: The `operation_id` of row 0; it counts up by one.
            epoch_offset_ns: Unix time minus loop time, in nanoseconds.
        """
        self.rows = Rows()
        self._first_id = first_id
        self._epoch_offset_ns = epoch_offset_ns
        self._members = 0
        # [column][part]. The keys of row 0 start at index 0 of the members.
        self._parts: dict[str, list[_Integers]] = {"keys": [np.zeros(1, np.int32)]}

    @property
    def count(self) -> int:
        """The number of rows, packed or not."""
        return self.rows.count

    def pack(self) -> None:
        """Move the rows of the buffer into columns."""
        rows = self.rows
        table = np.frombuffer(rows.buffer.rows(), _ROW)
        # Twice as fast as `np.fromiter`.
        members = np.frombuffer(struct.Struct(f"{len(rows.members)}i").pack(*rows.members), "i")
        created = table["created"] + self._epoch_offset_ns
        has_deadline = table["deadline"] < FOREVER
        deadline = table["deadline"] + self._epoch_offset_ns
        finished = table["finished"] + self._epoch_offset_ns
        kind, outcome = table["label"] >> 2, table["label"] & 3
        completer = table["completer"].copy()
        keys = np.cumsum(table["length"], dtype=np.int32)
        keys += self._members
        self._members += len(members)
        rows.buffer.clear()
        rows.members.clear()
        self._add(
            kind=kind,
            keys=keys,
            members=members,
            created=created,
            deadline=deadline,
            has_deadline=_bits(has_deadline),
            finished=finished,
            outcome=outcome,
            completer=completer,
            has_completer=_bits(completer >= 0),
            lateness=finished - deadline,
            is_late=_bits(has_deadline & (outcome == _EXPIRED)),
            checks=table["checks"].copy(),
        )

    def _add(self, **columns: _Integers) -> None:
        for name, values in columns.items():
            self._parts.setdefault(name, []).append(values)

    def to_arrow(self, run_id: str) -> pa.RecordBatch:
        """Convert to one record batch of `BATCH_SCHEMA`; afterwards this object is unusable.

        Args:
            run_id: Value of the `run_id` column.
        """
        self.pack()
        rows, count = self.rows, self.count
        texts = pa.array(map(_text, rows.keys), pa.string(), size=len(rows.keys))
        number, whole = pa.int32(), pa.int64()
        kinds = self._array("kind", number)
        members = pa.Array.from_buffers(number, self._members, [None, self._buffer("members")])
        offsets = pa.Array.from_buffers(number, count + 1, [None, self._buffer("keys")])
        columns = [
            _choice(pa.array(np.zeros(count, np.int32)), pa.array([run_id])),
            _choice(kinds, pa.array([_text(purgatory) for purgatory, _ in rows.kinds])),
            pa.array(np.arange(self._first_id, self._first_id + count, dtype=np.int64)),
            _choice(kinds, pa.array([_kind_name(kind) for _, kind in rows.kinds])),
            pa.ListArray.from_arrays(offsets, _choice(members, texts), type=_KEYS),
            self._array("created", whole),
            self._array("deadline", whole, valid="has_deadline"),
            self._array("finished", whole),
            _choice(self._array("outcome", number), pa.array([one.value for one in OUTCOMES])),
            _choice(self._array("completer", number, valid="has_completer"), texts),
            self._array("lateness", whole, valid="is_late"),
            self._array("checks", number),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=BATCH_SCHEMA)

    def _array(self, name: str, kind: pa.DataType, valid: str | None = None) -> pa.Array:
        bits = None if valid is None else self._buffer(valid)
        return pa.Array.from_buffers(kind, self.count, [bits, self._buffer(name)])

    def _buffer(self, name: str) -> pa.Buffer:
        # `np.concatenate` would release the GIL for every part: with a busy event loop, the
        # writer's thread would then wait milliseconds each time to get it back.
        return pa.py_buffer(b"".join(part.data for part in self._parts.pop(name)))


def _bits(truths: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    return np.packbits(truths, bitorder="little")


def _choice(numbers: pa.Array, texts: pa.Array) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(numbers, texts, safe=False)  # safe: checks each index


def _kind_name(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else _text(kind)


def _text(key: Hashable) -> str:
    try:
        text = key if isinstance(key, str) else repr(key)
    except Exception:  # a failing repr of a key must not lose the other rows
        text = f"<{type(key).__name__} without repr>"
    return as_unicode(text)  # an Arrow string cannot hold a lone surrogate
