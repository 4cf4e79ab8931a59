"""The transforms on a session of the caller: batch and stream, among other queries."""

import math
import os
import random
import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from aiowheel.jobs.operations.shard import Shard
from aiowheel.jobs.schemas import Flaw
from aiowheel.jobs.spark.failures import is_passing
from aiowheel.rules import NEVER, NO_VALUE, Event, Operation
from aiowheel.trace import TRACE_SCHEMA

from .test_purgatory import Trace, random_trace, write_trace
from .test_tune import ROWS, whole

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs/how-to/use-in-your-own-job.md"
TIMEOUT = 30
SETTING = "at AS tick_ns", "16 AS wheel_size", "at AS timeout_ns", "1.0 AS rate"
START = datetime(2026, 1, 1, tzinfo=UTC)


def touches() -> list[tuple[str, int]]:
    """Return keys and seconds in any order, with repeats and with gaps equal to the timeout."""
    generator = random.Random(1)
    rows = [(f"k{generator.randrange(40)}", generator.randrange(4_000)) for _ in range(2_000)]
    rows += [("tie", second) for second in (0, 30, 60, 91, 121)]
    generator.shuffle(rows)
    return rows


def expected(rows: list[tuple[str, int]]) -> set[tuple[str, int, int]]:
    """Return key, last and fire by an independent implementation of the rule."""
    by_key: dict[str, list[int]] = defaultdict(list)
    for key, second in rows:
        by_key[key].append(second)
    found: set[tuple[str, int, int]] = set()
    for key, seconds in by_key.items():
        ordered = sorted(seconds)
        for last, following in zip(ordered, [*ordered[1:], None], strict=True):
            if following is None or following > last + TIMEOUT:
                found.add((key, last, last + TIMEOUT))
    return found


def moment(second: int) -> datetime:
    """Return the timestamp of *second*."""
    return START + timedelta(seconds=second)


def second_of(moment: datetime) -> int:
    """Invert `moment`; Spark returns naive local times."""
    return round(moment.astimezone(UTC).timestamp() - START.timestamp())


def collected(frame: "DataFrame") -> list[tuple[Any, ...]]:
    """Return the rows as tuples."""
    return [tuple(row) for row in frame.collect()]


@contextmanager
def started(writer: "DataStreamWriter") -> Generator["StreamingQuery"]:
    """Run a query, and stop it at the end of the block, also after an error."""
    query = writer.start()
    try:
        yield query
    finally:
        query.stop()


def finished(writer: "DataStreamWriter") -> "StreamingQuery":
    """Run a query with state to its end; return it.

    On a busy machine a Python worker may start too slowly for Spark. Such a query has written
    nothing, and a new one goes on from its checkpoint.
    """
    from pyspark.errors import StreamingQueryException

    failures = 0
    while True:
        with started(writer) as query:
            try:
                assert query.awaitTermination(90)
            except StreamingQueryException as error:
                failures += 1
                if failures == 3 or not is_passing(error):
                    raise
            else:
                return query


def found_by_stream(
    spark: "SparkSession",
    name: str,
    parts: list[list[tuple[str, int]]],
    watermark: int,
    place: Path,
) -> list[tuple[str, int, int]]:
    """Return key, last and fire of a stream that reads one file for each of *parts*, in order."""
    from aiowheel.jobs import idle_events

    arriving = place / "arriving"
    arriving.mkdir()
    for number, part in enumerate(parts):
        file = arriving / f"{number}.parquet"
        columns = {"who": [key for key, _ in part], "at": [moment(second) for _, second in part]}
        schema = pa.schema([("who", pa.string()), ("at", pa.timestamp("us", "UTC"))])
        pq.write_table(pa.table(columns, schema), file)
        os.utime(file, (1e9 + number, 1e9 + number))  # Spark reads the older file first
    stream = (
        spark.readStream.schema("who string, at timestamp")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(arriving))
    )
    writer = (
        idle_events(stream, key="who", time="at", timeout=TIMEOUT, watermark=watermark)
        .writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
    )
    with started(writer) as query:
        assert query.awaitTermination(250)
    return [
        (key, second_of(last), second_of(fire)) for key, last, fire in collected(spark.table(name))
    ]


def test_integers_of_any_unit(spark: "SparkSession") -> None:
    """Times and keys keep their types; rows without one of them are ignored."""
    from aiowheel.jobs import idle_events

    rows = touches()
    frame = spark.createDataFrame([*rows, (None, 5), ("k1", None)], "who string, at int")

    found = idle_events(frame, key="who", time="at", timeout=TIMEOUT)

    assert found.dtypes == [("key", "string"), ("last", "bigint"), ("fire", "bigint")]
    result = collected(found)
    assert set(result) == expected(rows)
    assert len(result) == len(set(result))


def test_nan_is_a_key(spark: "SparkSession") -> None:
    """Only null is none."""
    from aiowheel.jobs import idle_events

    frame = spark.createDataFrame([(math.nan, 5), (1.5, 5), (None, 5)], "who double, at int")

    found = collected(idle_events(frame, key="who", time="at", timeout=TIMEOUT))

    assert sorted(str(key) for key, *_ in found) == ["1.5", "nan"]


def test_any_name_of_a_column_is_taken_literally(spark: "SparkSession") -> None:
    """A dot in a name does not lead into a struct, and a backtick ends no name."""
    from aiowheel.jobs import idle_events

    frame = spark.createDataFrame([("a", 1), ("a", 2)], ["id.orig_h", "the `time`"])

    found = idle_events(frame, key="id.orig_h", time="the `time`", timeout=TIMEOUT)

    assert collected(found) == [("a", 2, 2 + TIMEOUT)]


def test_timestamps_and_keys_of_another_type(spark: "SparkSession") -> None:
    """The transform runs twice in one session, inside a plan of the caller."""
    from aiowheel.jobs import idle_events

    rows = touches()
    numbers = {key: place for place, key in enumerate(sorted({key for key, _ in rows}))}
    frame = spark.createDataFrame(
        [(numbers[key], moment(second)) for key, second in rows], "device bigint, seen timestamp"
    ).repartition(3)

    found = idle_events(frame, key="device", time="seen", timeout=timedelta(seconds=TIMEOUT))
    again = idle_events(frame.where("device < 5"), key="device", time="seen", timeout=TIMEOUT)

    assert found.dtypes == [("key", "bigint"), ("last", "timestamp"), ("fire", "timestamp")]
    wanted = {(numbers[key], last, fire) for key, last, fire in expected(rows)}
    assert {
        (key, second_of(last), second_of(fire)) for key, last, fire in collected(found)
    } == wanted
    assert again.count() == sum(key < 5 for key, _, _ in wanted)


@pytest.mark.parametrize("hours", [24, 36])
@pytest.mark.parametrize("start", ["2026-03-07T17:00:00+00:00", "2026-10-31T17:00:00+00:00"])
def test_a_timeout_of_days_is_as_long_in_any_time_zone(
    spark: "SparkSession", start: str, hours: int
) -> None:
    """A day of New York has 23 hours in March and 25 in November."""
    from aiowheel.jobs import idle_events
    from aiowheel.jobs.spark.session import changed_settings

    first = round(datetime.fromisoformat(start).timestamp())
    span = hours * 3_600
    rows = [("tie", first), ("tie", first + span), ("gap", first), ("gap", first + span + 1)]
    frame = spark.createDataFrame(rows, "who string, at bigint")
    frame = frame.selectExpr("who", "timestamp_seconds(at) AS at")

    with changed_settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        found = idle_events(frame, key="who", time="at", timeout=timedelta(hours=hours))
        result = collected(found.selectExpr("key", "unix_seconds(last)", "unix_seconds(fire)"))

    lasts = [("gap", first), ("gap", first + span + 1), ("tie", first + span)]
    assert sorted(result) == [(key, last, last + span) for key, last in lasts]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_local_timestamps_keep_their_type(spark: "SparkSession", ansi: str) -> None:
    """A timeout is exact to the microsecond, also the longest one."""
    from aiowheel.jobs import idle_events
    from aiowheel.jobs.spark.session import changed_settings

    frame = spark.sql("SELECT 'a' AS who, timestamp_ntz '2026-03-07 12:00:00' AS at")
    timeout = timedelta(days=26_000, microseconds=1)

    with changed_settings(spark, {"spark.sql.ansi.enabled": ansi}):
        found = idle_events(frame, key="who", time="at", timeout=timeout)

        assert found.dtypes[2] == ("fire", "timestamp_ntz")
        assert collected(found.selectExpr("string(fire)")) == [("2097-05-13 12:00:00.000001",)]


def test_a_stream_finds_what_the_batch_finds(spark: "SparkSession", tmp_path: Path) -> None:
    """All gaps behind the watermark are found once, for any division into files."""
    rows = sorted(touches(), key=lambda row: row[1])
    last_file = [("flush", 1_000_000)]  # moves the watermark past every other row
    parts = [*(rows[place : place + 700] for place in range(0, len(rows), 700)), last_file]

    result = found_by_stream(spark, "transformed", parts, 1, tmp_path)

    assert set(result) == expected(rows)
    assert len(result) == len(set(result))


def test_a_row_of_a_stream_at_the_bound_keeps_its_key_alive(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """It comes a file later, exactly *watermark* behind the newest row and exactly at `fire`."""
    parts = [[("k", 65), ("newest", 100)], [("k", 95)], [("flush", 10_000)]]

    result = found_by_stream(spark, "at_the_bound", parts, 5, tmp_path)

    assert sorted(result) == [("k", 95, 125), ("newest", 100, 130)]


def test_a_late_row_of_a_stream_does_not_change_earlier_events(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """A row is dropped if it lies *timeout* behind the watermark, and otherwise used."""
    moves = [("newest", 100)]  # Spark drops rows a micro-batch later, by the watermark 95
    late = [("used", 70), ("dropped", 64)]
    parts = [[("used", 60), *moves], moves, late, [("flush", 10_000)]]

    result = found_by_stream(spark, "late_rows", parts, 5, tmp_path)

    assert sorted(result) == [("newest", 100, 130), ("used", 60, 90), ("used", 70, 100)]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_time_beyond_64_bits_is_an_error(
    spark: "SparkSession", ansi: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without ANSI mode Spark would go on with a negative time; nothing is logged beside it."""
    from pyspark.errors import PySparkException

    from aiowheel.jobs import idle_events

    latest = 2**63 - 1 - TIMEOUT
    rows = spark.createDataFrame([("a", latest), ("b", latest + 1)], "who string, at bigint")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        found = idle_events(rows, key="who", time="at", timeout=TIMEOUT)
        assert collected(found.where("key = 'a'")) == [("a", latest, 2**63 - 1)]
        with pytest.raises(PySparkException, match=f"at most {latest} .*, got {latest + 1}"):
            found.collect()
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert "ContextLogger" not in capsys.readouterr().err


def test_operations_end_as_in_a_purgatory(spark: "SparkSession") -> None:
    """Every row has one result; twice in one session, with another tick and other types."""
    from aiowheel.jobs import settle_operations
    from aiowheel.jobs.spark.session import changed_settings

    traces = [random_trace(seed) for seed in range(10)]
    operations = [row for trace in traces for row in trace.operations]
    events = [row for trace in traces for row in trace.events]
    rows: list[tuple[Any, ...]] = [
        (
            row.id,
            list(row.keys),
            [None if least == NO_VALUE else least for least in row.thresholds],
            "any" if row.wanted == 1 else "all",
            row.created,
            None if row.deadline == NEVER else row.deadline,
        )
        for row in operations
    ]
    bad: list[tuple[Any, ...]] = [("", ["a"], None, None, 1, 2), ("x", ["a"], None, "one", 1, 2)]
    frame = spark.createDataFrame(
        [*rows, *bad],
        "id string, keys array<string>, thresholds array<int>, mode string, created int,"
        " deadline bigint",
    )
    happened = spark.createDataFrame(
        [(key, time, None if value == NO_VALUE else value) for key, time, value in events]
        + [("a", -1, None)],
        "key string, time bigint, value bigint",
    )

    nulls = "spark.sql.jsonGenerator.ignoreNullFields"
    for tick in (10, 1):
        settled = settle_operations(frame.repartition(3), happened, tick=tick)
        shard = Shard(tick)
        shard.feed([*operations], [*events])
        endings = collected(settled.endings)
        assert sorted(row for row in endings if row[1]) == sorted(shard.settle(NEVER - 1))
        assert sum(row[1] is None for row in endings) == len(shard)
        assert len(endings) == len(operations)
    with changed_settings(spark, {nulls: "false"}):
        rejected = sorted(collected(settled.rejects))
    assert rejected == [
        ("events", Flaw.TIME.value, '{"key":"a","time":-1}'),
        ("operations", Flaw.ID.value, '{"id":"","keys":["a"],"created":1,"deadline":2}'),
        (
            "operations",
            Flaw.MODE.value,
            '{"id":"x","keys":["a"],"mode":"one","created":1,"deadline":2}',
        ),
    ]


@pytest.mark.thorough
def test_operations_in_mode_any_complete_by_any_key(spark: "SparkSession") -> None:
    """Optional columns and events may be missing."""
    from aiowheel.jobs import settle_operations

    operations = spark.createDataFrame(
        [("a", ["k", "l"], 10), ("b", ["m"], 10), ("c", ["k"], 21)],
        "id string, keys array<string>, created bigint",
    )
    events = spark.createDataFrame([("l", 20), ("k", 20), ("m", 9)], "key string, time bigint")

    settled = settle_operations(operations, events)
    settled.endings.persist()
    nothing = settle_operations(operations, events.where("time > 100"))

    assert collected(settled.outcomes) == [("a", "completed", "k", 20)]
    assert sorted(collected(settled.pending)) == [("b",), ("c",)]
    assert nothing.pending.count() == 3
    settled.endings.unpersist()


def test_wheels_run_under_a_load_and_a_trace(spark: "SparkSession") -> None:
    """Spark's results equal those of one process, setting by setting."""
    from aiowheel.jobs import Waits, simulate, tune
    from aiowheel.jobs.wheels.simulate import Load, run_task
    from aiowheel.jobs.wheels.tune import weigh_stretch

    waits = Waits.from_quantiles(0.02, 0.06)
    settings = spark.createDataFrame(
        [(10**6, 16, 2 * 10**8, 4e3), (10**7, 64, 2 * 10**8, 4e3)],
        "tick_ns bigint, wheel_size int, timeout_ns bigint, rate double",
    )
    simulated = simulate(settings, operations=501, waits=waits, shards=2, partitions=2)
    trace = pa.Table.from_pylist(ROWS, TRACE_SCHEMA)
    tuned = tune(
        spark.createDataFrame(trace),
        max_lateness=0.05,
        ticks=[0.05],
        wheel_sizes=[64],
        rows_per_stretch=40,
    )

    load = Load(501, waits, shards=2)
    costs = {"cpu_ns", "peak_bytes"}
    found = [
        {name: value for name, value in row.asDict().items() if name not in costs}
        for row in simulated.orderBy("tick_ns", "shard").collect()
    ]
    tasks = [row.asDict() | {"shard": shard} for row in settings.collect() for shard in (0, 1)]
    wanted = [run_task(task, load) for task in tasks]
    assert found == [
        {name: value for name, value in row.items() if name not in costs} for row in wanted
    ]
    (weighed,) = (row.asDict() for row in tuned.collect())
    runs = [trace.filter(pc.equal(trace["run_id"], run)) for run in ("r", "s")]
    answers = [weigh_stretch(run, [(50_000_000, 64)], whole(run)).to_pylist()[0] for run in runs]
    assert weighed["operations"] == 500
    assert weighed["expired"] == sum(row["expired"] for row in answers)
    assert weighed["wake_ups"] == sum(row["wake_ups"] for row in answers)
    assert weighed["cascaded"] == sum(row["cascaded"] for row in answers)
    for name in ("levels", "peak_pending", "late_max_ns"):
        assert weighed[name] == max(row[name] for row in answers)
    assert weighed["allowed"] is True


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ("id", ValueError, "operations must have a column 'id', got ['keys', 'created']"),
        ("keys string", TypeError, "keys of operations must be array<string>, got string"),
        ("created date", TypeError, "created of operations must be bigint, got date"),
        ("Deadline bigint", ValueError, "operations must have a column 'deadline', got ['id'"),
        ("tick", ValueError, "tick must be from 1 to 3600000000000, got 0"),
        ("stream", ValueError, "events must be a stream, as the other table is, got a batch"),
        ("unit", ValueError, "unit must be None for batches, got 'ms'"),
    ],
)
def test_wrong_tables_are_named(
    spark: "SparkSession", change: str, error: type[Exception], text: str
) -> None:
    """The call raises."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

    from aiowheel.jobs import settle_operations

    operations = spark.createDataFrame([], "id string, keys array<string>, created bigint")
    events = spark.createDataFrame([], "key string, time bigint")
    given: dict[str, Any] = {"tick": 0 if change == "tick" else 1}
    if change == "stream":
        rows = spark.readStream.format("rate").load()
        operations = rows.selectExpr("'x' AS id", "array('k') AS keys", "value AS created")
    elif change == "unit":
        given["unit"] = "ms"
    elif change == "id":
        operations = operations.drop("id")
    elif " " in change:
        name, kind = change.split()
        operations = operations.withColumn(name, F.lit(None).cast(kind))

    with pytest.raises(error) as caught:
        settle_operations(operations, events, **given)

    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"unit": None}, TypeError, "unit must be one of 's', 'ms', 'us', 'ns', got None"),
        ({"unit": "h"}, ValueError, "unit must be one of 's', 'ms', 'us', 'ns', got 'h'"),
        ({"watermark": None}, ValueError, "watermark must be from 0 s to a year for streams"),
        ({"watermark": -1}, ValueError, "watermark must be "),
        ({"watermark": timedelta(days=366)}, ValueError, "watermark must be from 0 s to a year"),
        ({"shards": 0}, ValueError, "shards must be from 1 to 100000, got 0"),
        ({"provider": "Other"}, ValueError, "spark.sql.streaming.stateStore.providerClass must be"),
    ],
)
def test_a_wrong_argument_for_streams_is_named(
    spark: "SparkSession", given: dict[str, Any], error: type[Exception], text: str
) -> None:
    """The call raises, not the running query."""
    from aiowheel.jobs import settle_operations

    rows = spark.readStream.format("rate").load()
    operations = rows.selectExpr("'x' AS id", "array('k') AS keys", "value AS created")
    events = rows.selectExpr("'k' AS key", "value AS time")
    arguments: dict[str, Any] = {"unit": "s", "watermark": 1, **given}
    provider = arguments.pop("provider", None)
    name = "spark.sql.streaming.stateStore.providerClass"
    before = str(spark.conf.get(name))
    try:
        if provider:
            spark.conf.set(name, provider)
        with pytest.raises(error) as caught:
            settle_operations(operations, events, **arguments)
    finally:
        spark.conf.set(name, before)

    assert str(caught.value).startswith(text)


@pytest.fixture
def far_east(spark: "SparkSession") -> Iterator[None]:
    """Give the session a time zone in which a local time is before the same time in UTC."""
    name = "spark.sql.session.timeZone"
    spark.conf.set(name, "Asia/Tokyo")
    yield
    spark.conf.set(name, "UTC")


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("far_east")
def test_streams_of_operations_end_as_in_a_purgatory(spark: "SparkSession", tmp_path: Path) -> None:
    """Each outcome comes once, in a query of the caller; rows far ahead are rejected."""
    from aiowheel.jobs import settle_operations
    from aiowheel.jobs.schemas import EVENTS, OPERATIONS
    from aiowheel.jobs.spark.progress import batch_counts
    from aiowheel.jobs.spark.values import ddl

    traces = [random_trace(seed) for seed in range(3)]
    operations = [row for trace in traces for row in trace.operations]
    events = [row for trace in traces for row in trace.events]
    shard = Shard(10)
    shard.feed([*operations], [*events])
    write_trace(tmp_path, Trace(operations, events), "0")
    # Rows that move both watermarks past all others; and one that would do so permanently.
    ends = [
        Operation(name, ("z",), (NO_VALUE,), 1, created, NEVER)
        for name, created in (("end", 10**12), ("far", 9 * 10**12))
    ]
    write_trace(tmp_path, Trace(ends, [Event("y", 10**12, NO_VALUE)]), "1")
    tables = [
        spark.readStream.schema(ddl(schema))
        .option("maxFilesPerTrigger", 1)
        .parquet(str(tmp_path / name))
        for name, schema in (("operations", OPERATIONS), ("events", EVENTS))
    ]
    found: list[tuple[Any, ...]] = []

    settled = settle_operations(tables[0], tables[1], tick=10, unit="ms", watermark=0, shards=2)
    rows = settled.outcomes.unionByName(settled.rejects, allowMissingColumns=True)
    writer = (
        rows.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(lambda frame, _batch_id: found.extend(collected(frame)))
        .trigger(availableNow=True)
    )
    query = finished(writer)

    outcomes = [row[:4] for row in found if row[1] is not None]
    assert sorted(outcomes) == sorted(shard.settle(NEVER - 1))
    assert [row[4:6] for row in found if row[1] is None] == [("operations", Flaw.AHEAD.value)]
    # As counted by a StreamListener: no row is lost or invented.
    batches = [batch_counts(batch) for batch in query.recentProgress]
    read = len(operations) + len(ends) + len(events) + 1
    assert tuple(map(sum, zip(*batches, strict=True))) == (read, 1, 0)


def test_transforms_run_no_job(spark: "SparkSession") -> None:
    """The transforms start no job and change no setting."""
    from aiowheel.jobs import (
        Waits,
        idle_events,
        report_tables,
        settle_operations,
        simulate,
        tune,
    )

    frame = spark.createDataFrame(touches(), "who string, at bigint")
    operations = spark.createDataFrame([], "id string, keys array<string>, created bigint")
    events = spark.createDataFrame([], "key string, time bigint")
    trace = spark.createDataFrame(TRACE_SCHEMA.empty_table())
    before = {row["key"]: row["value"] for row in spark.sql("SET").collect()}
    context = spark.sparkContext
    context.setJobGroup("transforms", "what the transforms start")
    try:
        idle_events(frame, key="who", time="at", timeout=TIMEOUT)
        report_tables(trace)
        settle_operations(operations, events)
        tune(trace, max_lateness=1)
        waits = Waits.from_quantiles(0.02, 0.06)
        simulate(frame.selectExpr(*SETTING), operations=100, waits=waits)
        started = list(context.statusTracker().getJobIdsForGroup("transforms"))
    finally:
        context.setJobGroup("tests", "")
    after = {row["key"]: row["value"] for row in spark.sql("SET").collect()}

    assert started == []
    groups = {"spark.jobGroup.id", "spark.job.description"}
    assert {key: value for key, value in after.items() if before.get(key) != value}.keys() <= groups


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"key": "nobody"}, ValueError, "key must be one of the columns ['who', 'at', 'when'], "),
        ({"time": "who"}, TypeError, "time must name a column of integers or timestamps, got "),
        ({"timeout": 0}, ValueError, "timeout must be from 1 to "),
        ({"timeout": 1.5}, TypeError, "timeout must be an int from 1 to "),
        ({"time": "when", "timeout": 0}, ValueError, "timeout must be from 1 microsecond to 73 "),
        ({"time": "when", "timeout": "30"}, TypeError, "timeout must be "),
        ({"watermark": 5}, ValueError, "watermark must be None for a batch, got 5"),
    ],
)
def test_a_wrong_argument_is_named(
    spark: "SparkSession", arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    """The call raises before Spark does any work."""
    from aiowheel.jobs import idle_events

    frame = spark.createDataFrame([], "who string, at bigint, when timestamp")
    usual: dict[str, Any] = {"key": "who", "time": "at", "timeout": TIMEOUT}

    with pytest.raises(error) as caught:
        idle_events(frame, **usual | arguments)

    assert str(caught.value).startswith(text)


def test_frames_of_pandas_are_refused(spark: "SparkSession") -> None:
    """A frame of pandas on Spark has columns and types, but other methods."""
    from aiowheel.jobs import (
        Waits,
        idle_events,
        report_tables,
        settle_operations,
        simulate,
        tune,
    )

    frame = spark.createDataFrame([], "id string, keys array<string>, created bigint")
    waits = Waits.from_quantiles(0.02, 0.06)
    others: list[Any] = [frame.pandas_api(), frame.toPandas(), None]
    calls: dict[str, Callable[[Any], object]] = {
        "df": lambda other: idle_events(other, key="id", time="created", timeout=TIMEOUT),
        "operations": lambda other: settle_operations(other, frame),
        "events": lambda other: settle_operations(frame, other),
        "trace": report_tables,
        "trace of a wheel": lambda other: tune(other, max_lateness=1),
        "settings": lambda other: simulate(other, operations=100, waits=waits),
    }

    for (name, call), other in product(calls.items(), others):
        kind = f"{type(other).__module__}.{type(other).__qualname__}"
        argument = name.split()[0]
        with pytest.raises(TypeError) as caught:
            call(other)
        assert str(caught.value) == f"{argument} must be a pyspark.sql.DataFrame, got a {kind}"


def test_a_stream_without_timestamps_is_refused(spark: "SparkSession") -> None:
    """Spark's watermarks are timestamps, and not local ones."""
    from aiowheel.jobs import idle_events

    stream = spark.readStream.format("rate").load()

    stream = stream.selectExpr("value", "cast(timestamp as timestamp_ntz) as local")
    for time in ("value", "local"):
        with pytest.raises(TypeError, match=r"^time of a stream must name a column of type timest"):
            idle_events(stream, key="value", time=time, timeout=TIMEOUT, watermark=1)


def test_the_page_runs_as_shown(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The blocks of the page run in order, and print its table."""
    folder = tmp_path / "trace"
    folder.mkdir()
    pq.write_table(TRACE_SCHEMA.empty_table(), folder / "trace-1.parquet")
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    code = [text for language, text in blocks if language == "python"]
    shown = next(text for language, text in blocks if language == "text")

    namespace: dict[str, Any] = {"spark": spark, "trace_folder": str(folder)}
    for text in code:
        exec(compile(textwrap.dedent(text), str(PAGE), "exec"), namespace)

    assert len(code) == 8
    assert shown in capsys.readouterr().out
