"""The purgatory as one query: every operation of a trace meets its events in a join. Rank 5.

No Python function. An operation waits in *bins*, stretches of time on each of its keys; it is
joined with the events of the same key and bin, and of those that come in time and meet the
threshold, the first for each key are what it is decided by. The rules are those of
`aiowheel.rules`, in SQL.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.rules import COMPLETED, EXPIRED, NEVER


def outcomes(operations: DataFrame, events: DataFrame, tick: int) -> DataFrame:
    """Select ``id``, ``outcome``, ``completed_by`` and ``at`` of every operation that ends.

    Args:
        operations: With the columns of `rules.Operation`; ids are unique.
        events: With the columns of `rules.Event`.
        tick: Of the wheel, in the unit of the times, at least 1.

    Cost: one pass over both for the size of the bins, one to decide; a shuffle of every key of
    every operation, of the events, and of what met.
    """
    last_event = events.agg(F.max("time")).first()
    horizon = -1 if last_event is None or last_event[0] is None else int(last_event[0])
    waiting = operations.select(
        "id", "keys", "thresholds", "wanted", "created", _expiry(tick).alias("expiry")
    ).withColumn("until", F.least("expiry", F.lit(horizon + 1)))  # no event comes after it
    bin_width, any_only = _measure(waiting)
    # First for each key alone: a minimum of integers needs no sorting, one of structs does.
    met = _met(waiting, events, bin_width)
    firsts = met.groupBy("id", "key", "wanted").agg(F.min("time").alias("time"))
    decided = _first_of_any(firsts) if any_only else _last_of_wanted(firsts)
    ends = waiting.select("id", "expiry").join(decided, "id", how="left")
    completed = F.col("at").isNotNull()
    return ends.where(completed | (F.col("expiry") != NEVER)).select(
        "id",
        F.when(completed, F.lit(COMPLETED)).otherwise(F.lit(EXPIRED)).alias("outcome"),
        F.col("key").alias("completed_by"),
        F.coalesce("at", "expiry").alias("at"),
    )


def _expiry(tick: int) -> Column:
    """`rules.expiry` in SQL."""
    deadline = F.col("deadline")
    return (
        F.when(deadline == NEVER, deadline)
        .when(deadline <= F.col("created"), F.col("created"))
        .otherwise(deadline + F.pmod(-deadline, F.lit(tick).cast("bigint")))
    )


def _measure(waiting: DataFrame) -> tuple[int, bool]:
    """The width of a bin, and whether every operation is over with the first key it meets."""
    row = waiting.agg(
        F.avg(F.greatest(F.col("until") - F.col("created"), F.lit(1))).alias("mean"),
        F.max("wanted").alias("wanted"),
    ).first()
    if row is None or row["mean"] is None:
        return 1, True
    # As wide as operations live in the mean: then they have two bins each, all in all.
    return max(1, int(row["mean"])), row["wanted"] == 1


def _met(waiting: DataFrame, events: DataFrame, bin_width: int) -> DataFrame:
    """``id``, ``key``, ``wanted`` and ``time`` of every event that an operation could end by."""
    width = F.lit(bin_width).cast("bigint")
    keys = waiting.where(F.col("until") > F.col("created")).select(
        "id",
        "wanted",
        "created",
        "until",
        F.explode(F.arrays_zip("keys", "thresholds")).alias("watched"),
    )
    binned = keys.select(
        "id",
        "wanted",
        "created",
        "until",
        F.col("watched.keys").alias("key"),
        F.col("watched.thresholds").alias("least"),
        F.explode(F.sequence(_bin("created", width), _bin("until", width, -1))).alias("bin"),
    )
    binned_events = events.select("key", "time", "value", _bin("time", width).alias("bin"))
    in_time = (F.col("time") >= F.col("created")) & (F.col("time") < F.col("until"))
    return (
        binned.join(binned_events, ["key", "bin"], how="inner")
        .where(in_time & (F.col("value") >= F.col("least")))
        .select("id", "key", "wanted", "time")
    )


def _bin(column: str, width: Column, offset: int = 0) -> Column:
    time = F.col(column) + F.lit(offset)
    return F.call_function("div", time, width)


def _first_of_any(firsts: DataFrame) -> DataFrame:
    """Of each operation the first event, as ``id``, ``at`` and ``key``."""
    return (
        firsts.groupBy("id")
        .agg(F.min(F.struct("time", "key")).alias("first"))
        .select("id", F.col("first.time").alias("at"), F.col("first.key").alias("key"))
    )


def _last_of_wanted(firsts: DataFrame) -> DataFrame:
    """Of each operation that met as many keys as it wants, the event with which it did."""
    return (
        firsts.groupBy("id", "wanted")
        .agg(F.sort_array(F.collect_list(F.struct("time", "key"))).alias("firsts"))
        .where(F.size("firsts") >= F.col("wanted"))
        .select("id", F.element_at("firsts", F.col("wanted").cast("int")).alias("last"))
        .select("id", F.col("last.time").alias("at"), F.col("last.key").alias("key"))
    )
