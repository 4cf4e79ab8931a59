"""Recording of every finished operation as Parquet files. Rank 4; needs pyarrow.

`TraceRecorder` writes a trace, `RecordedTimer` adds the deadlines of a timer to it, `read_trace`
and `read_trace_pandas` read it, and `TRACE_COLUMNS` describes its columns.
"""

from aiowheel.errors import MissingExtraError

try:
    from .reader import (
        read_trace as read_trace,
    )
    from .reader import (
        read_trace_pandas as read_trace_pandas,
    )
    from .reader import (
        trace_files as trace_files,
    )
    from .recorder import RecorderStatistics as RecorderStatistics
    from .recorder import TraceRecorder as TraceRecorder
    from .schema import (
        SCHEMA_VERSION as SCHEMA_VERSION,
    )
    from .schema import (
        TRACE_COLUMNS as TRACE_COLUMNS,
    )
    from .schema import (
        TRACE_SCHEMA as TRACE_SCHEMA,
    )
    from .schema import (
        TraceColumn as TraceColumn,
    )
    from .timers import RecordedHandle as RecordedHandle
    from .timers import RecordedTimer as RecordedTimer
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
