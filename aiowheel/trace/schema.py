"""The trace as a table: one row per finished delayed operation. Rank 4.

Source: the recorder writes this schema, the reader and the report job read it. Times are whole
nanoseconds since the Unix epoch, so that traces of several processes and machines are comparable; a
float of seconds could not hold them exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

SCHEMA_VERSION = 1
#: The metadata key of the trace version in a file.
VERSION_KEY = "aiowheel.trace.version"
#: The metadata key of the build, Python and machine that recorded a file.
RECORDER_KEY = "aiowheel.trace.recorder"


class TraceColumn(NamedTuple):
    """One column of the trace: its Arrow type and its meaning.

    Attributes:
        name: The column name, the same in Parquet, pandas and Spark.
        type: Arrow type.
        nullable: Whether values may be missing.
        unit: "ns", "ns since 1970-01-01 UTC", "count" or "" for texts.
        description: The meaning of a value, and when it is missing.
    """

    name: str
    type: pa.DataType
    nullable: bool
    unit: str
    description: str


_EPOCH_NS = "ns since 1970-01-01 UTC"
# Few distinct values in many rows: dictionary encoding stores them in about one byte a row.
_FEW_TEXTS = pa.dictionary(pa.int32(), pa.string())

TRACE_COLUMNS: tuple[TraceColumn, ...] = (
    TraceColumn("run_id", _FEW_TEXTS, False, "", "Names the recorder that wrote the row."),
    TraceColumn("purgatory", _FEW_TEXTS, False, "", "Name of the purgatory."),
    TraceColumn(
        "operation_id",
        pa.int64(),
        False,
        "count",
        "Counts the finished operations of the run from 0; a gap means dropped rows.",
    ),
    TraceColumn("kind", _FEW_TEXTS, False, "", "Class name of the operation."),
    TraceColumn(
        "keys",
        pa.list_(pa.field("element", pa.string(), nullable=False)),
        False,
        "",
        "The watched keys: texts as they are, everything else as its repr.",
    ),
    TraceColumn("created", pa.int64(), False, _EPOCH_NS, "When the operation was watched."),
    TraceColumn(
        "deadline",
        pa.int64(),
        True,
        _EPOCH_NS,
        "When it was to expire; null for an operation that never expires.",
    ),
    TraceColumn("finished", pa.int64(), False, _EPOCH_NS, "When its outcome became final."),
    TraceColumn("outcome", _FEW_TEXTS, False, "", "completed, expired, cancelled or failed."),
    TraceColumn(
        "completed_by", pa.string(), True, "", "The key whose check completed it, else null."
    ),
    TraceColumn(
        "lateness",
        pa.int64(),
        True,
        "ns",
        "finished minus deadline of an expired operation, else null; negative only when closing "
        "the purgatory expired it ahead of its deadline.",
    ),
    TraceColumn("checks", pa.int32(), False, "count", "How often try_complete was called."),
)

TRACE_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field(
            column.name,
            column.type,
            nullable=column.nullable,
            metadata={"unit": column.unit, "description": column.description},
        )
        for column in TRACE_COLUMNS
    ],
    metadata={VERSION_KEY: str(SCHEMA_VERSION)},
)
