"""Many rows in one value: the transport of a trace between Spark and Python. Rank 5: no Spark here.

PySpark passes rows to a stateful processor one at a time, through pandas and named tuples, which
costs more than the processing. So consecutive rows of a shard are combined into a *pack*, an Arrow
stream in one binary value, and few large rows are moved instead of many small ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: A pack of rows: its shard, the latest time of its rows, how many of them count, its number in the
#: task, and the rows.
PACK_DDL: Final = "shard int, latest bigint, count bigint, number bigint, pack binary"
PACK: Final = pa.schema(
    {
        "shard": pa.int32(),
        "latest": pa.int64(),
        "count": pa.int64(),
        "number": pa.int64(),
        "pack": pa.binary(),
    }
)


def pack_rows(batches: Iterable[pa.RecordBatch], counted: str = "time") -> Iterator[pa.RecordBatch]:
    """Pack rows with a ``shard`` and a ``time``, for `mapInArrow`; the column order is kept.

    The count of a pack is the number of its rows in which the column *counted* is not null.
    """
    numbers = count()
    for batch in batches:
        if batch.num_rows:
            yield packs_of(batch, numbers, counted)


def packs_of(rows: pa.RecordBatch, numbers: Iterator[int], counted: str = "time") -> pa.RecordBatch:
    """Pack at least one row with a ``shard`` and a ``time``; see `pack_rows`.

    Args:
        rows: The rows.
        numbers: The numbers of the packs of this task.
        counted: The column whose values are counted.
    """
    ordered = rows.take(pc.sort_indices(rows.column("shard")))
    shards = ordered.column("shard").to_numpy()
    begins = np.flatnonzero(np.diff(shards, prepend=-1))
    bare = ordered.drop_columns("shard")
    parts = [
        bare.slice(begin, end - begin)
        for begin, end in zip(begins, [*begins[1:], len(shards)], strict=True)
    ]
    columns = {
        "shard": shards[begins],
        "latest": [pc.max(part.column("time")).as_py() for part in parts],
        "count": [part.num_rows - part.column(counted).null_count for part in parts],
        "number": [next(numbers) for _ in parts],
        "pack": [_stream_of(part) for part in parts],
    }
    return pa.RecordBatch.from_pydict(columns, PACK)


def batch_of(schema: pa.Schema, rows: list[Any]) -> pa.RecordBatch:
    """Return tuples with the columns of *schema* as a batch."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def pack(schema: pa.Schema, rows: list[Any], compression: str | None = None) -> bytes:
    """Pack tuples with the columns of *schema*."""
    return _stream_of(batch_of(schema, rows), compression)


def unpack(data: bytes | pa.BufferReader) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a pack; for a reader with several packs, those of the next one."""
    with pa.ipc.open_stream(data) as reader:
        table = reader.read_all()
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _stream_of(rows: pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_batch(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data
