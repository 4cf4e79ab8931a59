"""Many rows as one value: how a trace crosses between Spark and Python. Rank 5: no Spark here.

PySpark hands rows to a stateful processor one at a time, by way of pandas and named tuples; that
costs more than all the purgatory does with them. So the rows of a shard that lie together are made
a *pack*, an Arrow stream in one binary value, and few rows with much in them are moved instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: A pack of rows: the shard they go to, their latest time, their number, and the rows.
PACK_DDL: Final = "shard int, latest bigint, count bigint, pack binary"
PACK: Final = pa.schema(
    {"shard": pa.int32(), "latest": pa.int64(), "count": pa.int64(), "pack": pa.binary()}
)


def pack_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack rows with a ``shard`` and a ``time``, for `mapInArrow`; the columns keep their order."""
    for batch in batches:
        if batch.num_rows:
            yield packs_of(batch)


def packs_of(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Pack some rows with a ``shard`` and a ``time``, at least one."""
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


def pack(schema: pa.Schema, rows: list[Any]) -> bytes:
    """Pack tuples with the columns of *schema*."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return _stream_of(pa.RecordBatch.from_arrays(arrays, schema=schema))


def unpack(data: bytes | pa.BufferReader) -> Iterator[tuple[Any, ...]]:
    """The rows of a pack; of a reader that holds several the next."""
    with pa.ipc.open_stream(data) as reader:
        table = reader.read_all()
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _stream_of(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data
