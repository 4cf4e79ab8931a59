"""Recording of every finished operation as Parquet files. Rank 4; needs pyarrow.

`TraceRecorder` writes a trace, `RecordedTimer` adds the deadlines of a timer to it, `read_trace`
and `read_trace_pandas` read it, and `TRACE_COLUMNS` describes its columns.
"""

from aiowheel.errors import MissingExtraError

try:
    from aiowheel.trace.reader import read_trace as read_trace
    from aiowheel.trace.reader import read_trace_pandas as read_trace_pandas
    from aiowheel.trace.reader import trace_files as trace_files
    from aiowheel.trace.recorder import RecorderStatistics as RecorderStatistics
    from aiowheel.trace.recorder import TraceRecorder as TraceRecorder
    from aiowheel.trace.schema import SCHEMA_VERSION as SCHEMA_VERSION
    from aiowheel.trace.schema import TRACE_COLUMNS as TRACE_COLUMNS
    from aiowheel.trace.schema import TRACE_SCHEMA as TRACE_SCHEMA
    from aiowheel.trace.schema import TraceColumn as TraceColumn
    from aiowheel.trace.timers import RecordedHandle as RecordedHandle
    from aiowheel.trace.timers import RecordedTimer as RecordedTimer
except ImportError as _error:
    raise MissingExtraError("trace") from _error

__all__ = (
    "SCHEMA_VERSION",
    "TRACE_COLUMNS",
    "TRACE_SCHEMA",
    "RecordedHandle",
    "RecordedTimer",
    "RecorderStatistics",
    "TraceColumn",
    "TraceRecorder",
    "read_trace",
    "read_trace_pandas",
    "trace_files",
)
