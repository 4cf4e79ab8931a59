"""Three engines on the same traces: one process, one query, one stream.

Two hundred random traces run through Spark as one: keys and ids contain the seed, so that the
traces do not affect each other.
"""

import random
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pytest

from aiowheel.jobs.operations.files import write_events, write_operations
from aiowheel.jobs.operations.shard import Shard
from aiowheel.jobs.schemas import OUTCOMES
from aiowheel.jobs.spark.checkpoint import Checkpoint
from aiowheel.readers import Unit
from aiowheel.rules import NEVER, NO_VALUE, Ending, Event, Operation

from .conftest import assert_nothing_lost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.overdue,
    pytest.mark.timeout(240),  # the first test of a run starts Spark
]

TICK = 10
SEEDS = 200
SPAN_MS = 20_000
LATE_MS = 500  # maximum disorder of the rows


Row = TypeVar("Row", Operation, Event)


class Trace(NamedTuple):
    """Operations and events with times in milliseconds."""

    operations: list[Operation]
    events: list[Event]


def random_trace(seed: int) -> Trace:
    """Return operations on 1 to 5 keys, any and all; a tenth of the times lie on ticks and tie."""
    source = random.Random(seed)
    keys = [f"{seed}/{number}" for number in range(source.randrange(2, 12))]

    def time(span: int) -> int:
        at = source.randrange(span)
        return at - at % 100 if source.random() < 0.1 else at

    def least() -> int:
        return source.choice((NO_VALUE, 1, 2, 3))

    operations: list[Operation] = []
    for number in range(20):
        watched = tuple(source.sample(keys, min(len(keys), source.randrange(1, 6))))
        created = time(SPAN_MS)
        deadline = source.choice((created + time(3_000), created + 1_000, created - 5, NEVER))
        operations.append(
            Operation(
                f"{seed}/op{number}",
                watched,
                tuple(least() for _ in watched),
                source.choice((1, len(watched))),
                created,
                max(0, deadline),
            )
        )
    events = [
        Event(source.choice(keys), time(SPAN_MS + 3_000), source.choice((NO_VALUE, 0, 1, 2, 3)))
        for _ in range(60)
    ]
    return Trace(operations, events)


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Return all random traces as one."""
    traces = [random_trace(seed) for seed in range(SEEDS)]
    return Trace(
        [row for each in traces for row in each.operations],
        [row for each in traces for row in each.events],
    )


@pytest.fixture(scope="module")
def expected(trace: Trace) -> list[Ending]:
    """Return the outcomes of one process, run for each trace separately."""
    endings: list[Ending] = []
    for seed in range(SEEDS):
        shard = Shard(TICK)
        shard.feed(*random_trace(seed))
        endings += shard.settle(NEVER - 1)
    assert len(endings) == len(trace.operations) - unended(trace)
    return sorted(endings)


def unended(trace: Trace) -> int:
    """Count operations that never end; other tests compare the one process with brute force."""
    shard = Shard(TICK)
    shard.feed(*trace)
    shard.settle(NEVER - 1)
    return len(shard)


def write_trace(folder: Path, trace: Trace, name: str = "0") -> None:
    """Write a trace as one file in each of two folders."""
    for table in ("operations", "events"):
        (folder / table).mkdir(parents=True, exist_ok=True)
    write_operations(folder / "operations" / f"{name}.parquet", trace.operations)
    write_events(folder / "events" / f"{name}.parquet", trace.events)


def write_in_disorder(folder: Path, trace: Trace, files: int) -> None:
    """Write a trace in files: out of order by up to `LATE_MS`, with the last rows last."""
    source = random.Random(files)
    operations = sorted(trace.operations, key=lambda row: row.created + source.randrange(LATE_MS))
    events = sorted(trace.events, key=lambda row: row.time + source.randrange(LATE_MS))
    for number in range(files):
        share = Trace(_part(operations, number, files), _part(events, number, files))
        write_trace(folder, share, f"{number:03d}")


def _part(rows: list[Row], number: int, parts: int) -> list[Row]:
    return rows[number * len(rows) // parts : (number + 1) * len(rows) // parts]


def by_query(trace: Trace, spark: "SparkSession", folder: Path) -> list[Ending]:
    """Return the outcomes of one query."""
    from aiowheel.jobs.operations.batch import run_purgatory
    from aiowheel.jobs.spark.sinks import read_folder

    write_trace(folder, trace)
    tables = folder / "operations", folder / "events"
    result = run_purgatory(spark, *tables, folder / "found", TICK, None)
    found = read_folder(folder / "found" / "outcomes", OUTCOMES)
    rows = len(trace.operations) + len(trace.events)
    assert_nothing_lost(asdict(result), folder / "found", rows)
    return sorted(Ending(*row.values()) for row in found.to_pylist())


def test_the_query_agrees_row_by_row(
    trace: Trace, expected: list[Ending], spark: "SparkSession", tmp_path: Path
) -> None:
    """Two hundred traces run in one query."""
    assert by_query(trace, spark, tmp_path) == expected


def test_the_query_agrees_on_busy_keys(spark: "SparkSession", tmp_path: Path) -> None:
    """On busy keys the query joins narrow bins first, and then wide bins for some operations."""
    source = random.Random("any and all")
    keys = ["busy", "busier", "quiet"]
    operations: list[Operation] = []
    for number in range(600):
        watched = tuple(source.sample(keys, source.randrange(1, 4)))
        created = source.randrange(SPAN_MS)
        least = tuple(source.choice((NO_VALUE, 500, 990, 1_001)) for _ in watched)
        wanted = 1 if number % 2 else len(watched)
        deadline = source.choice((created + source.randrange(9_000), NEVER))
        operations.append(Operation(str(number), watched, least, wanted, created, deadline))
    choose = ["busy"] * 40 + ["busier"] * 80 + ["quiet"]
    events = [
        Event(source.choice(choose), source.randrange(SPAN_MS), source.randrange(1_000))
        for _ in range(4_000)
    ]
    trace = Trace(operations, events)
    shard = Shard(TICK)
    shard.feed(*trace)

    assert by_query(trace, spark, tmp_path) == sorted(shard.settle(NEVER - 1))


def test_the_stream_agrees_row_by_row(
    trace: Trace, expected: list[Ending], spark: "SparkSession", tmp_path: Path
) -> None:
    """Rows come out of order, in several files, on two shards; no row is late."""
    from aiowheel.jobs.operations.stream import PurgatoryStream
    from aiowheel.jobs.spark.sinks import read_batches
    from aiowheel.jobs.spark.stream_run import StreamRun, Until

    write_in_disorder(tmp_path, trace, files=3)
    stream = PurgatoryStream(
        tmp_path / "operations",
        tmp_path / "events",
        tmp_path / "out",
        Checkpoint(tmp_path / "checkpoint"),
        Unit.MS,
        TICK,
        max_lateness_ms=LATE_MS,
        shards=2,
        files_per_batch=1,
    )

    late: dict[int, int] = {}

    def look(query: "StreamingQuery") -> None:
        for batch in query.recentProgress:
            late[batch.batchId] = stream.checked_counts(batch).late

    StreamRun(stream, spark, look).run(Until.DRAINED)

    found = read_batches(tmp_path / "out" / "outcomes", OUTCOMES)
    assert sorted(Ending(*row.values()) for row in found.to_pylist()) == expected
    assert len(late) > 2
    assert sum(late.values()) == 0
    stream.check_total(0, stream.count_pending(spark))
