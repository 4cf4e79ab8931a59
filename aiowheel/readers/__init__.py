"""Readers of tables of timed rows in files on disk. Rank 4: files in, integers out.

Every engine reads through these readers, so the same rules accept or reject a row everywhere.
"""

from aiowheel.readers._formats import Format as Format
from aiowheel.readers._formats import TimeFormat as TimeFormat
from aiowheel.readers._formats import Unit as Unit
from aiowheel.readers._inputs import Inputs as Inputs
from aiowheel.readers._pieces import Piece as Piece
from aiowheel.readers._pieces import Scan as Scan
from aiowheel.readers._pieces import pieces_of as pieces_of
from aiowheel.readers._records import raw_text as raw_text
from aiowheel.readers._rejects import RejectsFile as RejectsFile
from aiowheel.readers._rejects import write_rejects as write_rejects
from aiowheel.readers._spool import TimeOrder as TimeOrder
from aiowheel.readers._table import Batch as Batch
from aiowheel.readers._table import Reject as Reject
from aiowheel.readers._table import Tally as Tally
from aiowheel.readers._table import TimedRows as TimedRows
from aiowheel.readers._times import LATEST_TIME as LATEST_TIME
from aiowheel.readers._times import duration_in_unit as duration_in_unit
from aiowheel.readers._times import time_parser as time_parser

__all__ = (
    "LATEST_TIME",
    "Batch",
    "Format",
    "Inputs",
    "Piece",
    "Reject",
    "RejectsFile",
    "Scan",
    "Tally",
    "TimeFormat",
    "TimeOrder",
    "TimedRows",
    "Unit",
    "duration_in_unit",
    "pieces_of",
    "raw_text",
    "time_parser",
    "write_rejects",
)
