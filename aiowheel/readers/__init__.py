"""Tables of timed rows, read as they are found on disk. Rank 4: files in, integers out.

One reader serves every engine, so a row is accepted or rejected by one set of rules.
"""

from aiowheel.readers._formats import (
    Format as Format,
    TimeFormat as TimeFormat,
    Unit as Unit,
)
from aiowheel.readers._inputs import Inputs as Inputs
from aiowheel.readers._spool import TimeOrder as TimeOrder
from aiowheel.readers._table import (
    Batch as Batch,
    TimedRows as TimedRows,
)
from aiowheel.readers._times import (
    LATEST_TIME as LATEST_TIME,
    duration_in_unit as duration_in_unit,
    time_parser as time_parser,
)

__all__ = (
    "LATEST_TIME",
    "Batch",
    "Format",
    "Inputs",
    "TimeFormat",
    "TimeOrder",
    "TimedRows",
    "Unit",
    "duration_in_unit",
    "time_parser",
)
