"""Rows on their way from the event loop to the disk. Rank 4.

Source: the columns of `schema`. Runs on the writer's thread.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aiowheel._units import FOREVER

from ._rows import OUTCOMES, Rows
from .schema import TRACE_SCHEMA

_EXPIRED = 1  # its place in OUTCOMES
_Integers = npt.NDArray[np.int64]


def to_arrow(rows: Rows, run_id: str, epoch_offset_ns: int) -> pa.RecordBatch:
    """Convert to one record batch of the trace schema.

    Args:
        rows: The batch; not changed.
        run_id: Value of the `run_id` column.
        epoch_offset_ns: Unix time minus loop time, in nanoseconds.
    """
    labels = _small_integers(rows.labels)
    kinds, outcomes = labels >> 2, labels & 3
    created = _integers(rows.created) + epoch_offset_ns
    finished = _integers(rows.finished) + epoch_offset_ns
    timeout = _integers(rows.timeouts)
    never = timeout >= FOREVER
    deadline = created + np.where(never, 0, timeout)
    keys, completed_by = _texts(rows)
    columns = [
        _choice(np.zeros(rows.count, np.int64), [run_id]),
        _choice(kinds, [_text(purgatory) for purgatory, _ in rows.kinds]),
        np.arange(rows.first_id, rows.first_id + rows.count, dtype=np.int64),
        _choice(kinds, [_kind_name(kind) for _, kind in rows.kinds]),
        keys,
        created,
        pa.array(deadline, mask=never),
        finished,
        _choice(outcomes, [outcome.value for outcome in OUTCOMES]),
        completed_by,
        pa.array(finished - deadline, mask=never | (outcomes != _EXPIRED)),
        _small_integers(rows.checks).astype(np.int32),
    ]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=TRACE_SCHEMA)


def _small_integers(values: list[int]) -> _Integers:
    try:
        return np.frombuffer(bytes(values), np.uint8).astype(np.int64)
    except ValueError:  # one is no byte; three times the price
        return _integers(values)


def _integers(values: Sequence[Any]) -> _Integers:
    return np.fromiter(values, np.int64, len(values))


def _choice(places: _Integers, texts: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(places.astype(np.int32), pa.array(texts, pa.string()))


def _texts(rows: Rows) -> tuple[pa.ListArray, pa.Array]:
    """The columns `keys` and `completed_by`."""
    texts = pa.array(map(_text, rows.keys), pa.string(), size=len(rows.keys))
    completers = _integers(rows.completers)
    offsets = np.zeros(rows.count + 1, np.int32)
    np.cumsum(_small_integers(rows.lengths), out=offsets[1:])
    keys = pa.ListArray.from_arrays(
        offsets,
        texts.take(pa.array(_integers(rows.members))),
        type=TRACE_SCHEMA.field("keys").type,
    )
    return keys, texts.take(pa.array(completers, mask=completers < 0))


def _kind_name(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else _text(kind)


def _text(key: Hashable) -> str:
    try:
        text = key if isinstance(key, str) else repr(key)
    except Exception:  # the user's own __repr__ may fail; the other rows of the batch must not
        text = f"<{type(key).__name__} without repr>"
    # A lone surrogate (a file name that is not UTF-8, say) has no place in an Arrow string.
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
