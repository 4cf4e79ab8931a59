"""Idle detection as a transform of the caller's DataFrame, batch or streaming. Rank 5."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel._arguments import checked_int, safe_repr
from aiowheel._units import FOREVER, delay_to_ns
from aiowheel.jobs.idle.batch import column_named, is_idle
from aiowheel.jobs.spark.checked import check_frame
from aiowheel.jobs.spark.values import INTEGERS

if TYPE_CHECKING:
    from aiowheel._types import Delay

_TIMESTAMPS: Final = ("timestamp", "timestamp_ntz")
_MOST: Final = 2**62  # leaves as much to the times: the sum of both must fit into 64 bits
_LONGEST: Final = 2**63 - 1


def idle_events(
    df: DataFrame,
    *,
    key: str,
    time: str,
    timeout: Delay,
    watermark: Delay | None = None,
) -> DataFrame:
    """Return when keys became idle: one row for each gap that is longer than *timeout*.

    A key is idle at ``last + timeout`` if its next row is later than that or missing. A row exactly
    at ``last + timeout`` keeps the key alive. Rows without a key or a time are ignored.

    Args:
        df: A batch or streaming DataFrame, of any session.
        key: Name of the key column, of any type that Spark can sort, not a map.
        time: Name of the time column: integers of any unit, or timestamps. The sum of a time and
            *timeout* must fit into 64 bits; otherwise the query fails.
        timeout: Above 0. For integer times, a whole number of their unit; for timestamps, seconds
            or a timedelta, to the microsecond.
        watermark: How far a row of a stream may lie behind the newest one, in seconds or as a
            timedelta. A later row is used as well, unless it lies *timeout* or more behind the
            watermark; then it is dropped. None for a batch, and for a stream that already has a
            watermark on *time*; with two watermarks the query fails after its first micro-batch.

    Returns:
        ``key``, and ``last`` and ``fire`` of the type of *time*, or ``bigint`` if it holds
            integers. A stream emits a row, in output mode append, when the watermark has passed
            *fire*. A row that comes later than the watermark does not change the rows emitted
            before. Keys that are open when the stream ends have no row.

    Raises:
        TypeError: *df* is not a DataFrame of Spark, *time* is not a column of integers or
            timestamps, or a stream's column holds integers.
        ValueError: A column is missing, *timeout* is out of range, or *watermark* is given for a
            batch.

    Cost: one shuffle by key and a sort by time; for a stream, a session window, whose state has one
    row for each open key and one for each gap that the watermark has not passed.
    """
    check_frame("df", df)
    types = dict(df.dtypes)
    for argument, name in (("key", key), ("time", time)):
        if name not in types:
            raise ValueError(f"{argument} must be one of the columns {df.columns}, got {name!r}")
    rows = df.select(column_named(key).alias("key"), column_named(time).alias("last"))
    rows = rows.where(F.col("key").isNotNull() & F.col("last").isNotNull())  # NaN is a key
    if df.isStreaming:
        if types[time] != "timestamp":  # Spark has no watermarks on timestamp_ntz
            raise TypeError(
                f"time of a stream must name a column of type timestamp, got {time!r} of "
                f"{types[time]}"
            )
        return _by_session(rows, timeout, watermark)
    if watermark is not None:
        raise ValueError(f"watermark must be None for a batch, got {safe_repr(watermark)}")
    if types[time] in _TIMESTAMPS:
        # Spark adds the whole days of an interval literal in the session's time zone, where a day
        # may have 23 or 25 hours.
        seconds = Decimal(_micros("timeout", timeout)).scaleb(-6)
        return _by_next_row(rows, F.col("last") + F.make_interval(secs=F.lit(seconds)))
    if types[time] not in INTEGERS:
        raise TypeError(
            f"time must name a column of integers or timestamps, got {time!r} of {types[time]}"
        )
    units = checked_int("timeout", timeout, 1, _MOST)
    return _by_next_row(rows.withColumn("last", F.col("last").cast("bigint")), _later(units))


def _later(span: int) -> Column:
    """Return ``last`` plus *span*; an overflow is an error, also without Spark's ANSI mode."""
    last, latest = F.col("last"), _LONGEST - span
    text = f"time must be at most {latest} with the timeout {span}, got "
    error = F.raise_error(F.concat(F.lit(text), last.cast("string")))
    return F.when(last <= F.lit(latest), last + F.lit(span)).otherwise(error)


def _by_next_row(rows: DataFrame, fire: Column) -> DataFrame:
    following = F.lead("last").over(Window.partitionBy("key").orderBy("last"))
    return (
        rows.withColumn("following", following)
        .where(is_idle(fire, F.col("following")))
        .select("key", "last", fire.alias("fire"))
    )


def _by_session(rows: DataFrame, timeout: Delay, watermark: Delay | None) -> DataFrame:
    if watermark is not None:
        # Spark counts in milliseconds and ends a session at the watermark itself: without one more,
        # a row exactly *watermark* behind the newest one could not keep its key alive.
        late_ms = -(-_micros("watermark", watermark, least=0) // 1_000) + 1
        rows = rows.withWatermark("last", f"{late_ms} milliseconds")
    # Two rows exactly the gap apart share a session: the tie keeps the key alive.
    gap = f"{_micros('timeout', timeout)} microseconds"
    session = F.session_window("last", gap).alias("session")
    return (
        rows.groupBy("key", session)
        .agg(F.max("last").alias("latest"))
        .select("key", F.col("latest").alias("last"), F.col("session.end").alias("fire"))
    )


def _micros(name: str, delay: Delay, least: int = 1) -> int:
    nanoseconds = int(delay_to_ns(name, delay))
    if not least * 1_000 <= nanoseconds < FOREVER:
        bound = "0 s" if least == 0 else "1 microsecond"
        raise ValueError(f"{name} must be from {bound} to 73 years, got {safe_repr(delay)}")
    return nanoseconds // 1_000
