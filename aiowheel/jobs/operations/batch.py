"""The purgatory over a recorded trace as one Spark query. Rank 5."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.jobs.operations.files import (
    format_of_trace,
    refuse_doubled,
    refuse_without_good_rows,
)
from aiowheel.jobs.operations.first_events import trace_size
from aiowheel.jobs.operations.frames import (
    LIST_READER,
    read_events,
    read_operations,
    rejects,
    sound,
)
from aiowheel.jobs.operations.results import PurgatoryResult, results_beside
from aiowheel.jobs.operations.rows import parquet_files
from aiowheel.jobs.operations.transform import endings, mean_wait
from aiowheel.jobs.schemas import EVENTS, OPERATIONS
from aiowheel.jobs.spark.kafka import REJECTS_KEY
from aiowheel.jobs.spark.session import changed_settings
from aiowheel.jobs.spark.sinks import replace_folder
from aiowheel.jobs.spark.sources import Source
from aiowheel.jobs.spark.targets import check_replaceable, write_rows
from aiowheel.jobs.spark.uris import Topic, inside, local_path, parse_uri
from aiowheel.readers import Format
from aiowheel.rules import COMPLETED

# At about 100 bytes each, their hash table fits into the cache of a core.
_EVENTS_PER_PARTITION: Final = 125_000
_COMPRESSED: Final = "spark.sql.inMemoryColumnarStorage.compressed"
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
#: Writes the table of that name, and returns the number of its rows.
_Write: TypeAlias = Callable[[DataFrame, str], int]


def run_purgatory(
    spark: SparkSession,
    operations: str | Path,
    events: str | Path,
    out: str | Path,
    tick: int,
    form: Format | None,
    *,
    topic_options: Mapping[str, str] | None = None,
) -> PurgatoryResult:
    """Write the outcomes of a trace to ``out/outcomes`` and its bad rows to ``out/rejects``.

    Args:
        spark: The session.
        operations: A file or folder, or the URI of a folder, a Delta table or a topic.
        events: The same for events.
        out: A folder or its URI; with the prefix ``delta:`` the results are Delta tables; or a
            topic. The results are named as by `inside`. Results of an earlier run are replaced: in
            a local folder at the end and all together, elsewhere table by table. Topics grow.
        tick: The tick of the wheel, in the unit of the trace.
        form: The format of the files; None derives it from the suffixes of local files and means
            Parquet elsewhere.
        topic_options: Additional options for the reader and the writer of a topic, such as
            ``kafka.security.protocol``.

    Raises:
        BadInputError: An input is missing or is not a trace, a table has only bad rows, two
            operations have the same id, a URI is invalid, or see `check_replaceable`.
        AiowheelError: A row was lost; a local *out* keeps the results of the earlier run.
    """
    options = dict(topic_options or {})
    tables = [_source(str(table), form, options) for table in (operations, events)]
    for name in ("outcomes", "rejects"):
        check_replaceable(spark, inside(str(out), name))
    with ExitStack() as kept:

        def keep(frame: DataFrame) -> DataFrame:
            kept.callback(frame.persist(StorageLevel.DISK_ONLY).unpersist)
            return frame

        # Choosing the best compression costs more than it saves for a frame that is read twice.
        kept.enter_context(changed_settings(spark, {_COMPRESSED: "false", **LIST_READER}))
        frames = read_operations(spark, tables[0]), read_events(spark, tables[1])
        for rows, table in zip(frames, tables, strict=True):
            if table.form is not Format.PARQUET or isinstance(parse_uri(table.uri), Topic):
                keep(rows)  # parsed once for all uses; and all uses read the same rows of a topic
        folder = local_path(str(out))
        folder = None if folder is None else kept.enter_context(results_beside(folder))

        def write(frame: DataFrame, name: str) -> int:
            if folder is not None:
                return replace_folder(frame, folder / name)
            is_result = name != "rejects"  # without rejected rows, there is no folder of them
            key = ("id",) if is_result else REJECTS_KEY
            place = inside(str(out), name)
            return write_rows(frame, place, key=key, options=options, keep_empty=is_result)

        trace = _good_rows(*frames, write)
        _refuse_if_bad(operations, frames[0], trace.waits)
        _refuse_if_bad(events, frames[1], trace.happened)
        size = _size(trace, tick)
        usual = int(str(spark.conf.get(_PARTITIONS)))
        partitions = max(usual, int(trace.happened["used"]) // _EVENTS_PER_PARTITION)
        kept.enter_context(changed_settings(spark, {_PARTITIONS: str(partitions)}))
        any_only = (trace.waits["wanted"] or 1) == 1
        ends = endings(trace.operations, trace.events, tick, size, any_only=any_only, keep=keep)
        found = _write_outcomes(ends, trace, write)
        if found.completed + found.expired + found.pending < found.operations:
            _refuse_if_doubled(operations, trace.operations)
        rows_read = _rows_in(tables[0], OPERATIONS, trace.waits["rows"])
        found.check(rows_read + _rows_in(tables[1], EVENTS, trace.happened["rows"]))
        return found


class _Trace(NamedTuple):
    """The good rows of a trace.

    Attributes:
        operations: The good operations.
        events: The good events.
        rejected: Number of bad rows of both tables.
        waits: What Spark observed of the operations: ``rows``, ``used`` and ``wanted``.
        happened: What Spark observed of the events: ``rows``, ``used``, ``first`` and ``last``.
    """

    operations: DataFrame
    events: DataFrame
    rejected: int
    waits: Mapping[str, Any]
    happened: Mapping[str, Any]


def _good_rows(operations: DataFrame, events: DataFrame, write: _Write) -> _Trace:
    """Write the bad rows of both tables, and return the others."""
    waits, happened = Observation(), Observation()
    is_sound = F.col("flaw").isNull()
    used, time = F.count_if(is_sound).alias("used"), F.when(is_sound, F.col("time"))
    wanted = F.max(F.when(is_sound, F.col("wanted"))).alias("wanted")
    first, last = F.min(time).alias("first"), F.max(time).alias("last")
    each = F.count(F.lit(1)).alias("rows")
    bad = rejects(_rejectable(operations).observe(waits, each, used, wanted))
    bad_events = rejects(_rejectable(events).observe(happened, each, used, first, last))
    rejected = write(bad.unionByName(bad_events), "rejects")
    if rejected:  # otherwise there is nothing to filter, and no row must be checked again
        operations, events = sound(operations), sound(events)
    return _Trace(operations, events, rejected, waits.get, happened.get)


def _size(trace: _Trace, tick: int) -> Column:
    happened = trace.happened
    last_event = _literal(happened["last"] if happened["used"] else -1)
    mean = trace.operations.agg(mean_wait(last_event, tick)).first()
    return trace_size(
        events=_literal(happened["used"]),
        first_event=_literal(happened["first"] or 0),
        last_event=last_event,
        mean_wait=_literal(mean[0] if mean else 1),
    )


def _write_outcomes(ends: DataFrame, trace: _Trace, write: _Write) -> PurgatoryResult:
    """Write the operations that have ended, and count all operations."""
    left = Observation()
    outcome = F.col("outcome")
    pending = F.count_if(outcome.isNull()).alias("pending")
    completed = F.count_if(outcome == COMPLETED).alias("completed")
    ended = ends.observe(left, pending, completed).where(outcome.isNotNull())
    written = write(ended, "outcomes")
    return PurgatoryResult(
        operations=int(trace.waits["used"]),
        events=int(trace.happened["used"]),
        rejected=trace.rejected,
        completed=int(left.get["completed"]),
        expired=written - int(left.get["completed"]),
        pending=int(left.get["pending"]),
    )


def _source(uri: str, form: Format | None, options: Mapping[str, str]) -> Source:
    path = local_path(uri)
    known = (form or Format.PARQUET) if path is None else format_of_trace(path, form)
    return Source(uri, known, options=options)


def _literal(number: int) -> Column:
    return F.lit(number).cast("bigint")


def _rejectable(rows: DataFrame) -> DataFrame:
    """Compute source and text of rejected rows only, which costs more than checking a row."""
    is_bad = F.col("flaw").isNotNull()
    return rows.withColumns({name: F.when(is_bad, F.col(name)) for name in ("source", "raw")})


def _refuse_if_bad(path: str | Path, rows: DataFrame, observed: Mapping[str, Any]) -> None:
    if observed["rows"] and not observed["used"]:
        last = rejects(rows).agg(F.last("reason").alias("reason")).first()
        refuse_without_good_rows(path, observed["rows"], str(last and last["reason"]))


def _refuse_if_doubled(path: str | Path, rows: DataFrame) -> None:
    doubled = rows.groupBy("id").count().where("count > 1").orderBy(F.desc("count"), "id").first()
    if doubled is not None:
        refuse_doubled(path, int(doubled["count"]), str(doubled["id"]))


def _rows_in(source: Source, table: pa.Schema, counted: int) -> int:
    """Count Parquet rows by the files' own metadata, independent of what Spark read."""
    path = local_path(source.uri)
    if path is None or source.form is not Format.PARQUET:
        return counted
    return sum(parquet_files(path, table).values())
