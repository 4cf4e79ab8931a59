"""The tables of the purgatory jobs: what goes in and what comes out. Rank 5: no Spark here.

Times are integers of one unit a run, on any scale that has no negative times. Every row that
cannot be used gets a flaw, the reason under which it lies in the table of rejects.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import pyarrow as pa

from aiowheel.readers import Unit

#: One row an operation. `thresholds` (one for each key, null for "any event will do") may be null
#: as a whole, `mode` null is "any", `deadline` null is never.
OPERATIONS: Final = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("keys", pa.list_(pa.string()), nullable=False),
        pa.field("thresholds", pa.list_(pa.int64())),
        pa.field("mode", pa.string()),
        pa.field("created", pa.int64(), nullable=False),
        pa.field("deadline", pa.int64()),
    ]
)

#: One row an event. `value` null meets no threshold but a null one.
EVENTS: Final = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("time", pa.int64(), nullable=False),
        pa.field("value", pa.int64()),
    ]
)

#: One row an operation that ended; `completed_by` is null where `outcome` is "expired".
OUTCOMES: Final = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("outcome", pa.string()),
        pa.field("completed_by", pa.string()),
        pa.field("at", pa.int64()),
    ]
)

#: One row a row that could not be used.
REJECTS: Final = pa.schema(
    [
        pa.field("source", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("raw", pa.string()),
    ]
)

#: What no time may exceed, in any unit: sums of two times stay integers of 64 bits.
LATEST: Final = 2**61 - 1

ANY, ALL = "any", "all"
SEPARATOR: Final = "|"  #: between the keys, and the thresholds, of one operation in a csv


class Flaw(StrEnum):
    """Why a row cannot be used; of several the first in this order."""

    RECORD = "is no record of this table"
    ID = "id is empty"
    KEYS = "keys is empty, or a key is"
    REPEATED = "a key is given twice"
    THRESHOLDS = "thresholds has not one number or null for each key"
    MODE = "mode is neither any nor all"
    CREATED = "created is no time from 0 to 2**61-1"
    DEADLINE = "deadline is no time from 0 to 2**61-1"
    KEY = "key is empty"
    TIME = "time is no time from 0 to 2**61-1"
    AHEAD = "lies too far in the future"


def per_second(unit: Unit) -> int:
    """How many of *unit* a second has."""
    return int(10**unit.digits)
