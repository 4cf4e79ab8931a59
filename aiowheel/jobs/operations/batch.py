"""The purgatory as one query: every operation of a trace meets its events in a join. Rank 5.

No Python function. The rules are those of `aiowheel.rules`, in SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel._outputs import whole_folder
from aiowheel.jobs.operations.files import format_of_trace, refuse_for_want_of_good_rows
from aiowheel.jobs.operations.first_events import TraceSize, first_events
from aiowheel.jobs.operations.frames import read_events, read_operations, rejects, sound
from aiowheel.jobs.operations.in_process import PurgatoryResult, remove_stale, result_in
from aiowheel.jobs.spark.sinks import replace_folder
from aiowheel.readers import Format
from aiowheel.rules import COMPLETED, EXPIRED, NEVER

# Some 100 bytes each: a table of them stays in the cache of a core, where looking up is fastest.
_EVENTS_PER_PARTITION: Final = 125_000


def run_purgatory(
    spark: SparkSession, operations: Path, events: Path, out: Path, tick: int, form: Format | None
) -> PurgatoryResult:
    """Write the outcomes of a trace to ``out/outcomes``, and its bad rows to ``out/rejects``.

    Args:
        spark: The session.
        operations: A file or folder.
        events: A file or folder.
        out: Made when missing; what an earlier run put there is replaced, all or nothing.
        tick: Of the wheel, in the unit of the trace.
        form: Of the files; None goes by their suffixes.

    Raises:
        BadInputError: There is nothing to read, it is no trace, or a table has bad rows only.
    """
    operation_rows = read_operations(spark, operations, format_of_trace(operations, form))
    event_rows = read_events(spark, events, format_of_trace(events, form))
    for path, rows in ((operations, operation_rows), (events, event_rows)):
        if sound(rows).isEmpty():
            _refuse_if_rejected(path, rows)
    happened = _measure_events(sound(event_rows))
    waits = Observation()
    seen = operation_rows.observe(waits, *_measures(happened["last_event"], tick))
    with ExitStack() as kept:
        hidden = kept.enter_context(whole_folder(out))
        bad_rows = rejects(seen).unionByName(rejects(event_rows))
        rejected = replace_folder(bad_rows, hidden / "rejects")
        size = TraceSize(
            operations=waits.get["operations"],
            mean_wait=max(1, int(waits.get["mean_wait"] or 1)),
            any_only=(waits.get["wanted"] or 1) == 1,
            **happened,
        )
        kept.enter_context(_settings_for(spark, size.events))

        def keep(frame: DataFrame) -> DataFrame:
            kept.callback(frame.persist(StorageLevel.DISK_ONLY).unpersist)
            return frame

        if rejected:  # else there is nothing to leave out, and no row to be checked again
            operation_rows, event_rows = sound(operation_rows), sound(event_rows)
        found = outcomes(operation_rows, event_rows, tick, size, keep)
        ended = replace_folder(found, hidden / "outcomes")
    remove_stale(out, outcomes=not ended, rejects=not rejected)
    return result_in(out, size.operations, size.events, rejected)


def _refuse_if_rejected(path: Path, rows: DataFrame) -> None:
    bad = rejects(rows).agg(F.count("*").alias("count"), F.last("reason").alias("reason")).first()
    if bad is not None:  # an aggregate without groups has one row, also over nothing
        refuse_for_want_of_good_rows(path, bad["count"], bad["reason"])


@contextmanager
def _settings_for(spark: SparkSession, events: int) -> Generator[None]:
    """Have partitions as `_EVENTS_PER_PARTITION` says, and keep frames as they are, in the block.

    To look for the best compression of a frame that is read twice costs more than it saves.
    """
    partitions = "spark.sql.shuffle.partitions"
    compressed = "spark.sql.inMemoryColumnarStorage.compressed"
    before = {name: str(spark.conf.get(name)) for name in (partitions, compressed)}
    spark.conf.set(partitions, max(int(before[partitions]), events // _EVENTS_PER_PARTITION))
    spark.conf.set(compressed, "false")
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def _measure_events(events: DataFrame) -> Mapping[str, int]:
    row = events.agg(
        F.count("*").alias("events"),
        F.coalesce(F.min("time"), F.lit(0)).alias("first_event"),
        F.coalesce(F.max("time"), F.lit(-1)).alias("last_event"),
    ).first()
    if row is None:  # an aggregate without groups has one row, also over nothing
        raise AssertionError
    return row.asDict()


def _measures(last_event: int, tick: int) -> list[Column]:
    """What to find out of operations on the way of another query, sound ones and others."""
    is_sound = F.col("flaw").isNull()
    until = F.least(_expiry(tick), F.lit(last_event + 1))
    wait = F.greatest(until - F.col("created"), F.lit(1))
    return [
        F.count_if(is_sound).alias("operations"),
        F.avg(F.when(is_sound, wait)).alias("mean_wait"),
        F.max(F.when(is_sound, F.col("wanted"))).alias("wanted"),
    ]


def outcomes(
    operations: DataFrame,
    events: DataFrame,
    tick: int,
    size: TraceSize,
    keep: Callable[[DataFrame], DataFrame],
) -> DataFrame:
    """Select ``id``, ``outcome``, ``completed_by`` and ``at`` of every operation that ends.

    Args:
        operations: With the columns of `rules.Operation`; ids are unique.
        events: With the columns of `rules.Event`.
        tick: Of the wheel, in the unit of the times, at least 1.
        size: Of the trace.
        keep: Called with frames that are used several times; may persist them.

    Cost: a shuffle of every key of every operation, of the events, and of what met.
    """
    waiting = operations.select(
        "id", "keys", "thresholds", "wanted", "created", _expiry(tick).alias("expiry")
    )
    # Sorted once where they come together, not also where they come from.
    firsts = first_events(waiting, events, size, keep).repartition("id")
    ends = _first_of_any(firsts) if size.any_only else _last_of_wanted(firsts)
    completed = F.col("end").isNotNull()
    return ends.where(completed | (F.col("expiry") != NEVER)).select(
        "id",
        F.when(completed, F.lit(COMPLETED)).otherwise(F.lit(EXPIRED)).alias("outcome"),
        F.col("end.key").alias("completed_by"),
        F.coalesce("end.time", "expiry").alias("at"),
    )


def _expiry(tick: int) -> Column:
    """`rules.expiry` in SQL."""
    deadline = F.col("deadline")
    return (
        F.when(deadline == NEVER, deadline)
        .when(deadline <= F.col("created"), F.col("created"))
        .otherwise(deadline + F.pmod(-deadline, F.lit(tick).cast("bigint")))
    )


def _first_of_any(firsts: DataFrame) -> DataFrame:
    """Of each operation the first event, or null, as ``id``, ``expiry`` and ``end``."""
    return firsts.groupBy("id", "expiry").agg(F.min(_event()).alias("end"))


def _last_of_wanted(firsts: DataFrame) -> DataFrame:
    """Of each operation the event with which it met as many keys as it wants, or null."""
    met = F.sort_array(F.collect_list(_event()))
    return (
        firsts.groupBy("id", "expiry", "wanted", "key")
        .agg(F.min("time").alias("time"))
        .groupBy("id", "expiry", "wanted")
        .agg(met.alias("met"))
        .select("id", "expiry", F.get("met", F.col("wanted") - 1).alias("end"))
    )


def _event() -> Column:
    return F.when(F.col("time").isNotNull(), F.struct("time", "key"))
