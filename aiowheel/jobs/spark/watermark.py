"""Conversion between the times of a trace and Spark's watermark. Rank 5.

Spark's event time is in microseconds, its watermark in milliseconds, the times of a trace in any
unit. The rounding is exact: for a watermark W, a row is late if and only if its time is at or
before ``frontier(W)``.

All times are shifted by a millisecond: the watermark of a stream without rows is 0, and Spark would
drop a row at time 0, which is not later than that.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.jobs.spark.checkpoint import Checkpoint
from aiowheel.jobs.spark.sources import BINARY_FILES_DDL
from aiowheel.jobs.spark.uris import spark_path
from aiowheel.readers import Unit
from aiowheel.rules import NEVER

#: The time of a flush, in milliseconds: the year 2255. Spark passes timestamps to pandas, whose
#: range ends in 2262.
FLUSH_MS: Final = 9_000_000_000_000
_FLUSHED_MS: Final = 8_500_000_000_000  # 2239: later than every row, before any flush less lateness
#: The usual argument of `latest_now`.
DAY_MS: Final = 86_400_000
_SHIFT_US: Final = 1_000


def timestamp(column: str, unit: Unit) -> Column:
    """Return the event time of rows, rounded up so that rows after the frontier are not late."""
    time = F.col(column)
    if unit is Unit.NS:
        micros = F.call_function("div", time + F.lit(999), F.lit(1_000).cast("bigint"))
    else:
        micros = time * F.lit(1_000_000 // unit.per_second)
    return F.timestamp_micros(micros + F.lit(_SHIFT_US))


def timestamps(times: list[int], unit: Unit) -> Any:
    """Return the same as `timestamp`, in Python: an index of microseconds in UTC.

    Spark would read times without a zone in the time zone of the session.
    """
    if unit is Unit.NS:
        micros = [-(-time // 1_000) + _SHIFT_US for time in times]
    else:
        scale = 1_000_000 // unit.per_second
        micros = [time * scale + _SHIFT_US for time in times]
    return pd.DatetimeIndex(np.array(micros, dtype="datetime64[us]")).tz_localize("UTC")


def with_watermark(rows: DataFrame, max_lateness_ms: int) -> DataFrame:
    """Set the watermark on ``ts``: rows up to *max_lateness_ms* behind the newest are not late."""
    # Spark also drops rows exactly at the watermark; one millisecond more keeps the bound
    # inclusive.
    return rows.withWatermark("ts", f"{max_lateness_ms + 1} milliseconds")


def flushes(spark: SparkSession, checkpoint: Checkpoint) -> DataFrame:
    """Return ``shard`` and ``ts`` of the flush rows, one for each `send_flush`."""
    files = spark.readStream.format("binaryFile").schema(BINARY_FILES_DDL)
    return files.load(spark_path(checkpoint.flushes)).select(
        F.lit(0).alias("shard"), F.timestamp_millis(F.lit(FLUSH_MS)).alias("ts")
    )


def frontier(watermark_ms: int, unit: Unit) -> int:
    """Return the time up to which a trace is settled at the watermark *watermark_ms*.

    After a flush the whole trace is settled, including deadlines as late as the year 9999.
    """
    if watermark_ms > _FLUSHED_MS:
        return NEVER - 1
    return (watermark_ms - 1) * unit.per_second // 1_000


def watermark_at(time: int, unit: Unit) -> int:
    """Return the least watermark in milliseconds at which a trace is settled up to *time*.

    At most the watermark of a flush, which settles the whole trace.
    """
    return min(-(-time * 1_000 // unit.per_second) + 1, _FLUSHED_MS + 1)


def latest_now(unit: Unit, ahead_ms: int) -> Column:
    """Return the time *ahead_ms* after now in whole seconds, the latest legal time of a row.

    Now is the start of the micro-batch, so that a repeated batch uses the same limit.
    """
    now_ms = F.unix_millis(F.current_timestamp()) + F.lit(ahead_ms)
    second = F.lit(unit.per_second).cast("bigint")
    return (F.call_function("div", now_ms, F.lit(1_000)) + 1) * second - 1
