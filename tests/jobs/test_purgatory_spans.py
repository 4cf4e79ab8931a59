"""Spans of a real system as operations, to count those that took longer than a timeout.

A span is created at its start and completed by the event at its end. The expected counts are the
reference facts beside the data, in which a span that takes exactly the timeout is in time. So the
deadline is a nanosecond later.
"""

import csv
from collections import Counter
from collections.abc import Container
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pytest

from aiowheel.jobs.operations.files import write_events, write_operations
from aiowheel.jobs.operations.shard import Shard
from aiowheel.jobs.schemas import OUTCOMES
from aiowheel.jobs.spark.checkpoint import Checkpoint
from aiowheel.readers import Inputs, Unit
from aiowheel.rules import EXPIRED, NEVER, NO_VALUE, Ending, Event, Operation

from .conftest import assert_nothing_lost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPANS = "nezha-trainticket/nezha-trainticket-traces.tar.gz"
COLUMNS = ("TraceID", "SpanID", "ParentID", "StartTimeUnixNano", "EndTimeUnixNano")
SECOND = 1_000_000_000
TIMEOUTS = {"200ms": SECOND // 5, "1s": SECOND, "10s": 10 * SECOND}
ROOTS = {"200ms": 3_106, "1s": 578, "10s": 1}
ALL = {"200ms": 24_995, "1s": 3_710, "10s": 5}
LATE_MS = 130_000  # each file covers a minute; rows are out of order by up to two
FILES = 3


Row = TypeVar("Row", Operation, Event)


class Trace(NamedTuple):
    """Operations and events in the order of their files."""

    operations: list[Operation]
    events: list[Event]


@pytest.fixture(scope="module")
def requests(data_folder: Path) -> Trace:
    """Return the spans of requests to the system."""
    return read_spans(data_folder, {"root"})


def read_spans(data_folder: Path, parents: Container[str] | None) -> Trace:
    """Read spans with these parents, or all; each once, although some are in two files."""
    trace = Trace([], [])
    seen: set[str] = set()
    for source in Inputs([str(data_folder / SPANS)]).sources():
        rows = csv.reader(source.text)  # a DictReader takes twice as long
        header = next(rows)
        columns = itemgetter(*(header.index(name) for name in COLUMNS))
        for row in rows:
            trace_id, span_id, parent, begun, ended = columns(row)
            span = f"{trace_id}/{span_id}"
            if (parents is not None and parent not in parents) or span in seen:
                continue
            seen.add(span)
            start, end = int(begun), int(ended)
            trace.events.append(Event(span, end, NO_VALUE))
            for name, timeout in TIMEOUTS.items():
                deadline = start + timeout + 1
                trace.operations.append(
                    Operation(f"{name} {span}", (span,), (NO_VALUE,), 1, start, deadline)
                )
    return trace


def replay(trace: Trace) -> list[Ending]:
    """Return the outcomes of one process."""
    shard = Shard(1)
    shard.feed(*trace)
    return sorted(shard.settle(NEVER - 1))


def timed_out(endings: list[Ending]) -> Counter[str]:
    """Count the expired operations by timeout."""
    return Counter(row.id.split()[0] for row in endings if row.outcome == EXPIRED)


def by_query(trace: Trace, spark: "SparkSession", folder: Path) -> list[Ending]:
    """Return the outcomes of one Spark query."""
    from aiowheel.jobs.operations.batch import run_purgatory
    from aiowheel.jobs.spark.sinks import read_folder

    write_operations(folder / "ops.parquet", trace.operations)
    write_events(folder / "events.parquet", trace.events)
    result = run_purgatory(
        spark, folder / "ops.parquet", folder / "events.parquet", folder / "query", 1, None
    )
    assert (result.rejected, result.pending) == (0, 0)
    rows = len(trace.operations) + len(trace.events)
    assert_nothing_lost(asdict(result), folder / "query", rows)
    found = read_folder(folder / "query" / "outcomes", OUTCOMES)
    return sorted(Ending(*row.values()) for row in found.to_pylist())


def by_stream(trace: Trace, spark: "SparkSession", folder: Path) -> list[Ending]:
    """Return the outcomes of a Spark stream, in file order."""
    from aiowheel.jobs.operations.stream import PurgatoryStream
    from aiowheel.jobs.spark.sinks import read_batches
    from aiowheel.jobs.spark.stream_run import StreamRun, Until

    for name in ("ops", "ends"):
        (folder / name).mkdir()
    for number in range(FILES):
        write_operations(folder / "ops" / f"{number}.parquet", part(trace.operations, number))
        write_events(folder / "ends" / f"{number}.parquet", part(trace.events, number))
    stream = PurgatoryStream(
        folder / "ops",
        folder / "ends",
        folder / "stream",
        Checkpoint(folder / "checkpoint"),
        Unit.NS,
        max_lateness_ms=LATE_MS,
        shards=4,
        files_per_batch=1,
    )
    StreamRun(stream, spark).run(Until.DRAINED)
    found = read_batches(folder / "stream" / "outcomes", OUTCOMES)
    return sorted(Ending(*row.values()) for row in found.to_pylist())


def part(rows: list[Row], number: int) -> list[Row]:
    """Return the rows of one file."""
    return rows[number * len(rows) // FILES : (number + 1) * len(rows) // FILES]


@pytest.mark.slow
def test_one_process_counts_slow_requests(requests: Trace) -> None:
    """6,958 requests are counted for each of three timeouts."""
    assert len(requests.events) == 6_958
    assert timed_out(replay(requests)) == ROOTS


@pytest.mark.spark_cluster
def test_query_and_stream_agree_with_one_process(
    requests: Trace, spark: "SparkSession", tmp_path: Path
) -> None:
    """Outcomes are equal row by row, in nanoseconds."""
    expected = replay(requests)

    assert by_query(requests, spark, tmp_path) == expected
    assert by_stream(requests, spark, tmp_path) == expected


@pytest.mark.spark_cluster
@pytest.mark.timeout(900)
def test_all_engines_count_all_slow_spans(
    data_folder: Path, spark: "SparkSession", tmp_path: Path
) -> None:
    """Half a million spans have three timeouts each."""
    trace = read_spans(data_folder, None)
    expected = replay(trace)

    assert len(trace.events) == 499_224
    assert timed_out(expected) == ALL
    assert by_query(trace, spark, tmp_path) == expected
    assert by_stream(trace, spark, tmp_path) == expected
