"""The input and output tables of the jobs on Spark. Rank 5: no Spark here.

Times are integers of one unit per run, on any scale without negative times. Every rejected row has
a flaw: the reason in the table of rejects.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import pyarrow as pa

#: One row per touch; `t` is in the unit of the run.
TOUCHES: Final = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("t", pa.int64(), nullable=False),
    ]
)

#: One row per operation. `thresholds` has one value for each key, null for "any event", and may be
#: null as a whole; a null `mode` means "any", a null `deadline` means never.
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

#: One row per event. A null `value` meets only null thresholds.
EVENTS: Final = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("time", pa.int64(), nullable=False),
        pa.field("value", pa.int64()),
    ]
)

#: One row per ended operation; `completed_by` is null if `outcome` is "expired".
OUTCOMES: Final = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("outcome", pa.string()),
        pa.field("completed_by", pa.string()),
        pa.field("at", pa.int64()),
    ]
)

#: One row per rejected row.
REJECTS: Final = pa.schema(
    [
        pa.field("source", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("raw", pa.string()),
    ]
)

ANY, ALL = "any", "all"
SEPARATOR: Final = "|"  #: between the keys, and the thresholds, of one operation in a csv


class Flaw(StrEnum):
    """The reason why a row is rejected; of several, the first in this order."""

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
