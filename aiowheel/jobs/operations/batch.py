"""The purgatory as one query: every operation of a trace meets its events in a join. Rank 5.

The rules are those of `aiowheel.rules`, in SQL. Python is called for lines of text only.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.jobs.operations.files import format_of_trace, refuse_for_want_of_good_rows
from aiowheel.jobs.operations.first_events import TraceSize, first_events
from aiowheel.jobs.operations.frames import read_events, read_operations, rejects, sound
from aiowheel.jobs.operations.results import PurgatoryResult, result_in, results_beside
from aiowheel.jobs.operations.rows import parquet_files
from aiowheel.jobs.operations.schemas import EVENTS, OPERATIONS
from aiowheel.jobs.spark.sinks import replace_folder
from aiowheel.readers import Format
from aiowheel.rules import COMPLETED, EXPIRED, NEVER

# Some 100 bytes each: a table of them stays in the cache of a core, where looking up is fastest.
_EVENTS_PER_PARTITION: Final = 125_000
_PARTITIONS: Final = "spark.sql.shuffle.partitions"


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
        BadInputError: There is nothing to read, it is no trace, or a table has bad rows only.
        AiowheelError: A row was lost; what an earlier run put into *out* stays.
    """
    forms = format_of_trace(operations, form), format_of_trace(events, form)
    with ExitStack() as kept:

        def keep(frame: DataFrame) -> DataFrame:
            kept.callback(frame.persist(StorageLevel.DISK_ONLY).unpersist)
            return frame

        # To look for the best compression of a frame that is read twice costs more than it saves.
        kept.enter_context(_setting(spark, "spark.sql.inMemoryColumnarStorage.compressed", "false"))
        operation_rows = read_operations(spark, operations, forms[0])
        event_rows = read_events(spark, events, forms[1])
        for rows, each in ((operation_rows, forms[0]), (event_rows, forms[1])):
            if each is not Format.PARQUET:
                keep(rows)  # lines are parsed once, however often they are used
        folder = kept.enter_context(results_beside(out))
        happened = _measure_events(event_rows)
        waits = Observation()
        measures = _measures(happened["last_event"], tick)
        seen = _rejectable(operation_rows).observe(waits, *measures)
        bad = rejects(seen).unionByName(rejects(_rejectable(event_rows)))
        rejected = replace_folder(bad, folder / "rejects")
        _refuse_if_bad(operations, operation_rows, waits.get["rows"], waits.get["operations"])
        _refuse_if_bad(events, event_rows, happened["rows"], happened["events"])
        size = _size(waits.get, happened)
        if rejected:  # else there is nothing to leave out, and no row to be checked again
            operation_rows, event_rows = sound(operation_rows), sound(event_rows)
        partitions = max(_partitions(spark), size.events // _EVENTS_PER_PARTITION)
        kept.enter_context(_setting(spark, _PARTITIONS, str(partitions)))
        ends = outcomes(operation_rows, event_rows, tick, size, keep)
        left = Observation()
        pending = F.count_if(F.col("outcome").isNull())
        ended = ends.observe(left, pending.alias("pending")).where("outcome IS NOT NULL")
        replace_folder(ended, folder / "outcomes")
        return result_in(
            folder,
            rows=_rows_in(operations, forms[0], OPERATIONS, waits.get["rows"])
            + _rows_in(events, forms[1], EVENTS, happened["rows"]),
            operations=size.operations,
            events=size.events,
            pending=int(left.get["pending"]),
        )


def _rejectable(rows: DataFrame) -> DataFrame:
    """Make up source and text of what is rejected only: that costs more than to check a row."""
    is_bad = F.col("flaw").isNotNull()
    return rows.withColumns({name: F.when(is_bad, F.col(name)) for name in ("source", "raw")})


def _refuse_if_bad(path: Path, rows: DataFrame, count: int, used: int) -> None:
    if count and not used:
        last = rejects(rows).agg(F.last("reason").alias("reason")).first()
        refuse_for_want_of_good_rows(path, count, str(last and last["reason"]))


def _size(waits: Mapping[str, Any], happened: Mapping[str, int]) -> TraceSize:
    return TraceSize(
        operations=waits["operations"],
        events=happened["events"],
        first_event=happened["first_event"],
        last_event=happened["last_event"],
        mean_wait=max(1, int(waits["mean_wait"] or 1)),
        any_only=(waits["wanted"] or 1) == 1,
    )


def _rows_in(path: Path, form: Format, table: pa.Schema, counted: int) -> int:
    """Of Parquet what its files say, which does not depend on what Spark has read of them."""
    return sum(parquet_files(path, table).values()) if form is Format.PARQUET else counted


def _partitions(spark: SparkSession) -> int:
    return int(str(spark.conf.get(_PARTITIONS)))


@contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Generator[None]:
    before = str(spark.conf.get(name))
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def _measure_events(events: DataFrame) -> Mapping[str, int]:
    is_sound = F.col("flaw").isNull()
    time = F.when(is_sound, F.col("time"))
    row = events.agg(
        F.count("*").alias("rows"),
        F.count_if(is_sound).alias("events"),
        F.coalesce(F.min(time), F.lit(0)).alias("first_event"),
        F.coalesce(F.max(time), F.lit(-1)).alias("last_event"),
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
        F.count(F.lit(1)).alias("rows"),
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
    """Select ``id``, ``outcome``, ``completed_by`` and ``at`` of every operation.

    Of one that waits for ever they are null but for its ``id``.

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
    expired = F.col("expiry") != NEVER
    return ends.select(
        "id",
        F.when(completed, F.lit(COMPLETED)).when(expired, F.lit(EXPIRED)).alias("outcome"),
        F.col("end.key").alias("completed_by"),
        F.coalesce("end.time", F.when(expired, F.col("expiry"))).alias("at"),
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
