"""Sorted parts of idle events merged into one order, many rows at a time. Rank 5; no Spark."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_EVENTS_IN_MEMORY = 1_000_000
_FEWEST_A_PART = 4_096
_ORDER = [("fire", "ascending"), ("key", "ascending")]  # text by its UTF-8 bytes


def merged_parts(parts: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    """Walk over ``fire, key`` of all *parts* by fire, then key; each part is sorted by fire.

    Rows without a key are left out. Memory is that of a million events, or of those of one instant
    if there are more.
    """
    with ExitStack() as stack:
        at_once = max(_FEWEST_A_PART, _EVENTS_IN_MEMORY // max(1, len(parts)))
        ahead = [_Part(stack.enter_context(pq.ParquetFile(part)), at_once) for part in parts]
        ahead = [part for part in ahead if not part.is_empty]
        while ahead:
            # What is still to be read of a part is not before its newest row.
            bound = min((part.newest for part in ahead if not part.is_over), default=None)
            taken = pa.concat_batches([part.take_before(bound) for part in ahead])
            if taken.num_rows:
                yield taken.take(pc.sort_indices(taken, sort_keys=_ORDER))
            for part in ahead:
                if not part.is_over and part.newest == bound:
                    part.read_on()
            ahead = [part for part in ahead if not part.is_empty]


class _Part:
    """The events of one file that were read and not taken yet."""

    def __init__(self, file: pq.ParquetFile, at_once: int) -> None:
        self._batches = file.iter_batches(at_once, columns=["fire", "key"])
        self._events: pa.RecordBatch | None = None
        self.newest: int | None = None
        self.is_over = False
        self.read_on()

    @property
    def is_empty(self) -> bool:
        return self.is_over and (self._events is None or not self._events.num_rows)

    def read_on(self) -> None:
        batch = next(self._batches, None)
        if batch is None:
            self.is_over = True
            return
        self._events = batch if self._events is None else pa.concat_batches([self._events, batch])
        if batch.num_rows:
            self.newest = batch.column("fire")[-1].as_py()

    def take_before(self, bound: int | None) -> pa.RecordBatch:
        events = self._events
        assert events is not None
        count = events.num_rows
        if bound is not None:
            count = int(np.searchsorted(events.column("fire").to_numpy(), bound))
        self._events = events.slice(count)
        taken = events.slice(0, count)
        keys = taken.column("key")
        return taken.filter(keys.is_valid()) if keys.null_count else taken
