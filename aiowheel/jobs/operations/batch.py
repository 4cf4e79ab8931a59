"""The purgatory over a trace as one query, from files to files. Rank 5."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.jobs.operations.files import format_of_trace, refuse_for_want_of_good_rows
from aiowheel.jobs.operations.first_events import TraceSize
from aiowheel.jobs.operations.frames import read_events, read_operations, rejects, sound
from aiowheel.jobs.operations.results import PurgatoryResult, result_in, results_beside
from aiowheel.jobs.operations.rows import parquet_files
from aiowheel.jobs.operations.schemas import EVENTS, OPERATIONS
from aiowheel.jobs.operations.transform import endings, mean_wait
from aiowheel.jobs.spark.sinks import replace_folder
from aiowheel.readers import Format

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
        for rows, kind in ((operation_rows, forms[0]), (event_rows, forms[1])):
            if kind is not Format.PARQUET:
                keep(rows)  # lines are parsed once, however often they are used
        folder = kept.enter_context(results_beside(out))
        waits, happened = Observation(), Observation()
        is_sound = F.col("flaw").isNull()
        used, time = F.count_if(is_sound).alias("used"), F.when(is_sound, F.col("time"))
        wanted = F.max(F.when(is_sound, F.col("wanted"))).alias("wanted")
        first, last = F.min(time).alias("first"), F.max(time).alias("last")
        each = F.count(F.lit(1)).alias("rows")
        bad = rejects(_rejectable(operation_rows).observe(waits, each, used, wanted))
        bad_events = rejects(_rejectable(event_rows).observe(happened, each, used, first, last))
        rejected = replace_folder(bad.unionByName(bad_events), folder / "rejects")
        count, event_count = int(waits.get["used"]), int(happened.get["used"])
        _refuse_if_bad(operations, operation_rows, waits.get["rows"], count)
        _refuse_if_bad(events, event_rows, happened.get["rows"], event_count)
        if rejected:  # else there is nothing to leave out, and no row to be checked again
            operation_rows, event_rows = sound(operation_rows), sound(event_rows)
        last_event = _literal(happened.get["last"] if event_count else -1)
        size = TraceSize(
            events=_literal(event_count),
            first_event=_literal(happened.get["first"] or 0),
            last_event=last_event,
            mean_wait=mean_wait(operation_rows, last_event, tick),
        )
        partitions = max(_partitions(spark), event_count // _EVENTS_PER_PARTITION)
        kept.enter_context(_setting(spark, _PARTITIONS, str(partitions)))
        any_only = (waits.get["wanted"] or 1) == 1
        ends = endings(operation_rows, event_rows, tick, size, any_only=any_only, keep=keep)
        left = Observation()
        pending = F.count_if(F.col("outcome").isNull())
        ended = ends.observe(left, pending.alias("pending")).where("outcome IS NOT NULL")
        replace_folder(ended, folder / "outcomes")
        return result_in(
            folder,
            rows=_rows_in(operations, forms[0], OPERATIONS, waits.get["rows"])
            + _rows_in(events, forms[1], EVENTS, happened.get["rows"]),
            operations=count,
            events=event_count,
            pending=int(left.get["pending"]),
        )


def _literal(number: int) -> Column:
    return F.lit(number).cast("bigint")


def _rejectable(rows: DataFrame) -> DataFrame:
    """Make up source and text of what is rejected only: that costs more than to check a row."""
    is_bad = F.col("flaw").isNotNull()
    return rows.withColumns({name: F.when(is_bad, F.col(name)) for name in ("source", "raw")})


def _refuse_if_bad(path: Path, rows: DataFrame, count: int, used: int) -> None:
    if count and not used:
        last = rejects(rows).agg(F.last("reason").alias("reason")).first()
        refuse_for_want_of_good_rows(path, count, str(last and last["reason"]))


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
