"""Rows on their way from the event loop to the disk. Rank 4.

Source: the columns of `schema`; one Python list per column, because appending to a list is the
cheapest thing the event loop can do, and turning lists into Arrow is left to the writer's thread.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .schema import TRACE_SCHEMA

# Beyond this many seconds a time does not fit 64 bits of nanoseconds (about the year 2262).
_LATEST_SECONDS = 9_000_000_000.0
_class_name = attrgetter("__name__")
_member_value = attrgetter("_value_")  # `value` is a property in Python, ten times the price


class Batch:
    """One list per column, all of equal length: row i is entry i of every list.

    `operation_id` needs no list: it counts up by one from `first_id`.
    """

    __slots__ = (
        "checks",
        "completed_by",
        "created",
        "deadlines",
        "finished",
        "first_id",
        "keys",
        "kinds",
        "outcomes",
        "purgatories",
    )

    def __init__(self, first_id: int) -> None:
        self.first_id = first_id
        self.purgatories: list[str] = []
        self.kinds: list[type] = []
        self.keys: list[Sequence[Hashable]] = []
        self.created: list[float] = []  # loop seconds, as the two below
        self.deadlines: list[float] = []
        self.finished: list[float] = []
        self.outcomes: list[Any] = []  # members of aiowheel.Outcome
        self.completed_by: list[Hashable | None] = []
        self.checks: list[int] = []  # filled last: its length counts the whole rows

    def __len__(self) -> int:
        return len(self.checks)

    def to_arrow(self, run_id: str, epoch_offset_ns: int) -> pa.RecordBatch:
        """Convert to one record batch of the trace schema.

        Args:
            run_id: Value of the `run_id` column.
            epoch_offset_ns: Unix time minus loop time, in nanoseconds.
        """
        rows = len(self)
        texts = _KeyTexts()
        created, _ = _epoch_ns(self.created, epoch_offset_ns)
        deadline, never = _epoch_ns(self.deadlines, epoch_offset_ns)
        finished, _ = _epoch_ns(self.finished, epoch_offset_ns)
        outcome = pa.array(map(_member_value, self.outcomes), pa.string(), size=rows)
        expired = pc.equal(outcome, "expired").to_numpy(zero_copy_only=False)
        columns = [
            pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array([run_id])),
            pa.array(self.purgatories, pa.string()).dictionary_encode(),
            np.arange(self.first_id, self.first_id + rows, dtype=np.int64),
            pa.array(map(_class_name, self.kinds), pa.string(), size=rows).dictionary_encode(),
            _key_lists(self.keys, texts),
            created,
            pa.array(deadline, mask=never),
            finished,
            outcome.dictionary_encode(),
            pa.array(
                [None if key is None else texts[key] for key in self.completed_by], pa.string()
            ),
            pa.array(finished - deadline, mask=never | ~expired),
            pa.array(self.checks, pa.int32()),
        ]
        return pa.RecordBatch.from_arrays(
            [pa.array(column) for column in columns], schema=TRACE_SCHEMA
        )


def _epoch_ns(
    seconds: list[float], epoch_offset_ns: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Loop seconds as Unix nanoseconds, and which of them are too far off to have one."""
    values = np.array(seconds, dtype=np.float64)
    never = ~(np.abs(values) < _LATEST_SECONDS)
    values[never] = 0.0
    return np.rint(values * 1e9).astype(np.int64) + epoch_offset_ns, never


def _key_lists(keys: list[Sequence[Hashable]], texts: _KeyTexts) -> pa.ListArray:
    offsets = np.zeros(len(keys) + 1, dtype=np.int32)
    np.cumsum(np.fromiter(map(len, keys), np.int32, len(keys)), out=offsets[1:])
    elements = pa.array(list(map(texts.__getitem__, chain.from_iterable(keys))), pa.string())
    return pa.ListArray.from_arrays(offsets, elements, type=TRACE_SCHEMA.field("keys").type)


class _KeyTexts(dict[Hashable, str]):
    """Texts of the keys of one batch, made once each: a repr costs more than all the rest."""

    def __missing__(self, key: Hashable) -> str:
        text = self[key] = _text(key)
        return text


def _text(key: Hashable) -> str:
    try:
        text = key if isinstance(key, str) else repr(key)
    except Exception:  # the user's own __repr__ may fail; the other rows of the batch must not
        text = f"<{type(key).__name__} without repr>"
    # A lone surrogate (a file name that is not UTF-8, say) has no place in an Arrow string.
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
