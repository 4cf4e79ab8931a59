"""Merging of sorted parts of idle events in large batches. Rank 5; no Spark."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_EVENTS_IN_MEMORY = 1_000_000
_FEWEST_A_PART = 4_096
_NEVER = 2**63 - 1
_ORDER = [("fire", "ascending"), ("key", "ascending")]  # Arrow compares text by UTF-8 bytes


def merged_parts(parts: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    """Yield ``fire, key`` of all *parts* by fire, then key; each part is sorted by fire.

    Rows without a key are left out. Holds about a million events in memory, or all events of one
    instant if these are more.
    """
    with ExitStack() as stack:
        at_once = max(_FEWEST_A_PART, _EVENTS_IN_MEMORY // max(1, len(parts)))
        ahead = [_Part(stack.enter_context(pq.ParquetFile(part)), at_once) for part in parts]
        ahead = [part for part in ahead if not part.is_empty]
        while ahead:
            # The unread events of a part are not before the newest event read from it.
            bound = min((part.newest for part in ahead if not part.is_over), default=_NEVER)
            taken = pa.concat_tables([part.take_before(bound) for part in ahead])
            ordered = taken.take(pc.sort_indices(taken, sort_keys=_ORDER))
            yield from ordered.combine_chunks().to_batches()
            for part in ahead:
                if not part.is_over and part.newest == bound:
                    part.read_on()
            ahead = [part for part in ahead if not part.is_empty]


def events_in(batch: pa.RecordBatch) -> Iterator[tuple[int, str]]:
    """Yield ``(fire, key)`` of each row."""
    return zip(*(batch.column(name).to_pylist() for name in ("fire", "key")), strict=True)


class _Part:
    """The events of one file that were read but not yet merged."""

    def __init__(self, file: pq.ParquetFile, at_once: int) -> None:
        self._batches = file.iter_batches(at_once, columns=["fire", "key"])
        self._events = pa.table(
            {"fire": pa.array([], pa.int64()), "key": pa.array([], pa.string())}
        )
        self.newest: int = _NEVER
        self.is_over = False
        self.read_on()

    @property
    def is_empty(self) -> bool:
        return self.is_over and not self._events.num_rows

    def read_on(self) -> None:
        batch = next(self._batches, None)
        if batch is None:
            self.is_over = True
            return
        self._events = pa.concat_tables([self._events, pa.Table.from_batches([batch])])
        if batch.num_rows:
            self.newest = batch.column("fire")[-1].as_py()

    def take_before(self, bound: int) -> pa.Table:
        events = self._events
        count = int(np.searchsorted(events.column("fire").to_numpy(), bound))
        self._events = events.slice(count)
        taken = events.slice(0, count)
        keys = taken.column("key")
        return taken.filter(keys.is_valid()) if keys.null_count else taken
