"""The purgatory as one query: every operation of a trace meets its events in a join. Rank 5.

No Python function. An operation waits in *bins*, stretches of time on each of its keys; it is
joined with the events of the same key and bin, and of those that come in time and meet the
threshold, the first for each key are what it is decided by. The rules are those of
`aiowheel.rules`, in SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.pipeline._trace_frames import read_events, read_operations, rejects, sound
from aiowheel.pipeline.purgatory_replay import PurgatoryResult, result_in
from aiowheel.pipeline.sinks import replace_folder
from aiowheel.pipeline.trace_files import format_of_trace
from aiowheel.readers import Format
from aiowheel.rules import COMPLETED, EXPIRED, NEVER


@dataclass(frozen=True, slots=True)
class TraceSize:
    """What the query must know of a trace before it is planned.

    Attributes:
        operations: How many there are.
        events: How many there are.
        last_event: The time of the last one, or -1.
        mean_wait: How long an operation may wait for them in the mean, at least 1.
        any_only: Whether every operation is over with the first key it meets.
    """

    operations: int
    events: int
    last_event: int
    mean_wait: int
    any_only: bool


def run_purgatory(
    spark: SparkSession, operations: Path, events: Path, out: Path, tick: int, form: Format | None
) -> PurgatoryResult:
    """Write the outcomes of a trace to ``out/outcomes``, and its bad rows to ``out/rejects``.

    Args:
        spark: The session.
        operations: A file or folder.
        events: A file or folder.
        out: Made when missing; what an earlier run put there is replaced.
        tick: Of the wheel, in the unit of the trace.
        form: Of the files; None goes by their suffixes.

    Raises:
        BadInputError: There is nothing to read, or it is no trace.
    """
    operation_rows = read_operations(spark, operations, format_of_trace(operations, form))
    event_rows = read_events(spark, events, format_of_trace(events, form))
    bad = rejects(operation_rows).unionByName(rejects(event_rows))
    rejected = replace_folder(bad, out / "rejects")
    size = measure(sound(operation_rows), sound(event_rows), tick)
    found = outcomes(sound(operation_rows), sound(event_rows), tick, size)
    replace_folder(found, out / "outcomes")
    return result_in(out, size.operations, size.events, rejected)


def measure(operations: DataFrame, events: DataFrame, tick: int) -> TraceSize:
    """Pass over a trace once."""
    event = events.agg(F.count("*").alias("rows"), F.max("time").alias("last")).first()
    last_event = -1 if event is None or event["last"] is None else int(event["last"])
    until = F.least(_expiry(tick), F.lit(last_event + 1))
    row = operations.agg(
        F.count("*").alias("rows"),
        F.avg(F.greatest(until - F.col("created"), F.lit(1))).alias("mean"),
        F.max("wanted").alias("wanted"),
    ).first()
    if event is None or row is None:  # an aggregate without groups has one row, also over nothing
        raise AssertionError
    mean_wait = max(1, int(row["mean"] or 1))
    any_only = row["wanted"] is None or row["wanted"] == 1
    return TraceSize(int(row["rows"]), int(event["rows"]), last_event, mean_wait, any_only)


def outcomes(operations: DataFrame, events: DataFrame, tick: int, size: TraceSize) -> DataFrame:
    """Select ``id``, ``outcome``, ``completed_by`` and ``at`` of every operation that ends.

    Args:
        operations: With the columns of `rules.Operation`; ids are unique.
        events: With the columns of `rules.Event`.
        tick: Of the wheel, in the unit of the times, at least 1.
        size: As `measure` found it.

    Cost: a shuffle of every key of every operation, of the events, and of what met.
    """
    waiting = operations.select(
        "id", "keys", "thresholds", "wanted", "created", _expiry(tick).alias("expiry")
    ).withColumn("until", F.least("expiry", F.lit(size.last_event + 1)))
    # With bins as wide as operations wait in the mean, each has two of them all in all.
    met = _met(waiting, events, size.mean_wait)
    # First for each key alone: a minimum of integers needs no sorting, one of structs does.
    firsts = met.groupBy("id", "key", "wanted").agg(F.min("time").alias("time"))
    decided = _first_of_any(firsts) if size.any_only else _last_of_wanted(firsts)
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
