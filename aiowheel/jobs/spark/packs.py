"""Many rows in one value: the transport of a trace between Spark and Python. Rank 5: no Spark here.

PySpark passes rows to a stateful processor one at a time, through pandas and named tuples, which
costs more than the processing. So consecutive rows of a shard are combined into a *pack*, an Arrow
stream in one binary value, and few large rows are moved instead of many small ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: A pack of rows: its shard, the latest time of its rows, their number, and the rows.
PACK_DDL: Final = "shard int, latest bigint, count bigint, pack binary"
PACK: Final = pa.schema(
    {"shard": pa.int32(), "latest": pa.int64(), "count": pa.int64(), "pack": pa.binary()}
)


def pack_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack rows with a ``shard`` and a ``time``, for `mapInArrow`; the column order is kept."""
    for batch in batches:
        if batch.num_rows:
            yield packs_of(batch)


def packs_of(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Pack at least one row with a ``shard`` and a ``time``."""
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
        "count": [part.num_rows for part in parts],
        "pack": [_stream_of(part) for part in parts],
    }
    return pa.RecordBatch.from_pydict(columns, PACK)


def pack(schema: pa.Schema, rows: list[Any], compression: str | None = None) -> bytes:
    """Pack tuples with the columns of *schema*."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return _stream_of(pa.RecordBatch.from_arrays(arrays, schema=schema), compression)


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
