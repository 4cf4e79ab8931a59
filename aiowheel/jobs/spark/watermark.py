"""Times of a trace beside Spark's watermark. Rank 5.

Spark's event time is in microseconds, its watermark in milliseconds, ours in any unit. Rounding
makes no difference here: of a stream with the watermark W a row is late exactly if its time is at
or before ``frontier(W)``.

Everything is shifted by a millisecond, because the watermark of a stream that saw nothing is 0, and
Spark would drop what is not later than that: a time of 0.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.jobs.operations.schemas import per_second
from aiowheel.jobs.spark.checkpoint import Checkpoint
from aiowheel.jobs.spark.uris import spark_path
from aiowheel.readers import Unit
from aiowheel.rules import NEVER

#: The time of a flush, in milliseconds: the year 2255. Spark hands timestamps to pandas, which ends
#: in 2262.
FLUSH_MS: Final = 9_000_000_000_000
_FLUSHED_MS: Final = 8_500_000_000_000  # 2239: beyond every row, and a flush less any lateness
_FILES_DDL: Final = "path string, modificationTime timestamp, length bigint, content binary"

_SHIFT_US: Final = 1_000


def timestamp(column: str, unit: Unit) -> Column:
    """The event time of rows; rounded up, so that what is after the frontier is not late."""
    time = F.col(column)
    if unit is Unit.NS:
        micros = F.call_function("div", time + F.lit(999), F.lit(1_000).cast("bigint"))
    else:
        micros = time * F.lit(1_000_000 // per_second(unit))
    return F.timestamp_micros(micros + F.lit(_SHIFT_US))


def timestamps(times: list[int], unit: Unit) -> Any:
    """As `timestamp`, in Python: a numpy array of microseconds."""
    if unit is Unit.NS:
        micros = [-(-time // 1_000) + _SHIFT_US for time in times]
    else:
        scale = 1_000_000 // per_second(unit)
        micros = [time * scale + _SHIFT_US for time in times]
    return np.array(micros, dtype="datetime64[us]")


def flushes(spark: SparkSession, checkpoint: Checkpoint) -> DataFrame:
    """``shard`` and ``ts`` of the rows behind which nothing is open, one for each `send_flush`."""
    files = spark.readStream.format("binaryFile").schema(_FILES_DDL)
    return files.load(spark_path(checkpoint.flushes)).select(
        F.lit(0).alias("shard"), F.timestamp_millis(F.lit(FLUSH_MS)).alias("ts")
    )


def frontier(watermark_ms: int, unit: Unit) -> int:
    """Up to where a trace is settled when Spark's watermark stands at *watermark_ms*.

    After a flush that is all of it: there are deadlines in the year 9999.
    """
    if watermark_ms > _FLUSHED_MS:
        return NEVER - 1
    return (watermark_ms - 1) * per_second(unit) // 1_000


def watermark_at(time: int, unit: Unit) -> int:
    """The least watermark in milliseconds at whose `frontier` a trace is settled up to *time*.

    No greater than that of a flush, which settles everything.
    """
    return min(-(-time * 1_000 // per_second(unit)) + 1, _FLUSHED_MS + 1)


def latest_now(unit: Unit, ahead_ms: int) -> Column:
    """The time *ahead_ms* after now, in whole seconds: no row of a stream may be later.

    Now is the start of the micro-batch, so a batch that is repeated repeats its choice.
    """
    now_ms = F.unix_millis(F.current_timestamp()) + F.lit(ahead_ms)
    second = F.lit(per_second(unit)).cast("bigint")
    return (F.call_function("div", now_ms, F.lit(1_000)) + 1) * second - 1
