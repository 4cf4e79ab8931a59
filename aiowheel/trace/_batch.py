"""Rows on their way from the event loop to the disk. Rank 4.

Source: the columns of `schema`. Parts are packed on the event loop, while their integers still lie
in the cache; all the rest runs on the writer's thread.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aiowheel._units import FOREVER

from ._rows import OUTCOMES, Rows
from .schema import TRACE_SCHEMA

#: Rows that are packed together: some 0.1 ms of the event loop.
ROWS_PER_PART = 2_048
# Of `Rows.columns`: three are nanoseconds, the others counts and places.
_TYPES = (np.int32, np.int64, np.int64, np.int64, np.int32, np.int32, np.int32, np.int32)
_EXPIRED = 1  # its place in OUTCOMES
_Integers = npt.NDArray[np.integer[Any]]


def pack(rows: Rows) -> None:
    """Move the rows that lie in lists into arrays, an eighth of their size."""
    columns = rows.columns()
    rows.parts.append(
        [
            np.fromiter(column, kind, len(column))
            for column, kind in zip(columns, _TYPES, strict=True)
        ]
    )
    for column in columns:
        column.clear()


def to_arrow(rows: Rows, run_id: str, epoch_offset_ns: int) -> pa.RecordBatch:
    """Convert to one record batch of the trace schema.

    Args:
        rows: The batch; it gets packed.
        run_id: Value of the `run_id` column.
        epoch_offset_ns: Unix time minus loop time, in nanoseconds.
    """
    pack(rows)
    parts = cast("list[list[_Integers]]", rows.parts)
    labels, created, timeouts, finished, checks, lengths, completers, members = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    kinds, outcomes = labels >> 2, labels & 3
    created += epoch_offset_ns
    finished += epoch_offset_ns
    never = timeouts >= FOREVER
    deadline = created + np.where(never, 0, timeouts)
    texts = pa.array(map(_text, rows.keys), pa.string(), size=len(rows.keys))
    columns = [
        _choice(np.zeros(rows.count, np.int32), [run_id]),
        _choice(kinds, [_text(purgatory) for purgatory, _ in rows.kinds]),
        np.arange(rows.first_id, rows.first_id + rows.count, dtype=np.int64),
        _choice(kinds, [_kind_name(kind) for _, kind in rows.kinds]),
        _key_lists(lengths, texts.take(pa.array(members))),
        created,
        pa.array(deadline, mask=never),
        finished,
        _choice(outcomes, [outcome.value for outcome in OUTCOMES]),
        texts.take(pa.array(completers, mask=completers < 0)),
        pa.array(finished - deadline, mask=never | (outcomes != _EXPIRED)),
        checks,
    ]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=TRACE_SCHEMA)


def _choice(places: _Integers, texts: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(places, pa.array(texts, pa.string()))


def _key_lists(lengths: _Integers, elements: pa.Array) -> pa.ListArray:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(offsets, elements, type=TRACE_SCHEMA.field("keys").type)


def _kind_name(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else _text(kind)


def _text(key: Hashable) -> str:
    try:
        text = key if isinstance(key, str) else repr(key)
    except Exception:  # the user's own __repr__ may fail; the other rows of the batch must not
        text = f"<{type(key).__name__} without repr>"
    # A lone surrogate (a file name that is not UTF-8, say) has no place in an Arrow string.
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
