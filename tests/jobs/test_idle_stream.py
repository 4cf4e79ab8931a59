"""Idle detection over arriving files, compared with the facts and with the wheel."""

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aiowheel.cli import run
from aiowheel.cli._idle_file import summarize
from aiowheel.errors import BadInputError
from aiowheel.readers import LATEST_TIME, Inputs, Reject, TimedRows, TimeFormat, Unit, time_parser
from aiowheel.readers._row_rules import RowRules
from aiowheel.recipes._idle_trace import idle_events

from .conftest import FACTS

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from aiowheel.jobs.idle.touch_files import TouchFiles, _RejectsFile
from aiowheel.jobs.spark.checkpoint import Checkpoint
from aiowheel.jobs.spark.packs import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SPANS = "nezha-trainticket/nezha-trainticket-traces.tar.gz", "StartTimeUnixNano"
LOGS = "nezha-trainticket/nezha-trainticket-logs.tar.gz", "TimeUnixNano"
NASA = "nasa-http-1995-08-01/nasa_19950801.tsv.gz", "time"
VIEWS = {  # file, its time column, the view's key, unit, how late rows come in ms
    "nasa": (*NASA, "host", Unit.S, 0),
    "trace": (*SPANS, "TraceID", Unit.NS, 119_223),
    "pod": (*SPANS, "PodName", Unit.NS, 119_223),
    "logpod": (*LOGS, "PodName", Unit.NS, 119_218),
}
QUICK = ("nasa", 30)  # the other views have ten times the rows and run in `make test-cluster`
each_fact = pytest.mark.parametrize(
    ("name", "seconds", "events", "sha256"),
    [
        pytest.param(
            *fact,
            id=f"{fact[0]}-{fact[1]}",
            marks=[] if fact[:2] == QUICK else [pytest.mark.spark_cluster],
        )
        for fact in FACTS
    ],
)
FeedView = Callable[[str, int], Path]


@pytest.fixture(scope="module")
def feed_view(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> FeedView:
    """Return a folder of *count* files with the rows of a view, in the order of its own files."""

    def feed(name: str, count: int) -> Path:
        file, time, key, unit, _ = VIEWS[name]
        parse = time_parser(TimeFormat.EPOCH, unit)
        rows = TimedRows(Inputs([str(data_folder / file)]), key=key, time=time, parse_time=parse)
        batches = [pa.table({"key": batch.keys, "t": batch.times}) for batch in rows.batches()]
        table = pa.concat_tables(batches)
        folder = tmp_path_factory.mktemp(name)
        step = -(-table.num_rows // count)
        for number in range(count):
            part = folder / f"{number:04}.parquet"
            pq.write_table(table.slice(number * step, step), part)
            os.utime(part, (1e9 + number, 1e9 + number))  # Spark reads files by modification time
        return folder

    return feed


@each_fact
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_stream_finds_the_idle_events_of_the_facts(
    name: str,
    seconds: int,
    events: int,
    sha256: str,
    feed_view: FeedView,
    spark: "SparkSession",
    tmp_path: Path,
) -> None:
    """Fed in file order, with the lateness of the facts, then drained."""
    from aiowheel.jobs.idle.stream import IdleStream, read_idle_events
    from aiowheel.jobs.spark.stream_run import StreamRun, Until

    _, _, _, unit, late_ms = VIEWS[name]
    stream = IdleStream(
        folder=feed_view(name, 3),
        out=tmp_path / "out",
        checkpoint=Checkpoint(tmp_path / "checkpoint"),
        files=touch_files(unit),
        timeout=seconds * int(10**unit.digits),
        max_lateness_ms=late_ms,
        shards=4,
        files_per_batch=1,
    )

    dropped: list[int] = []

    def look(query: "StreamingQuery") -> None:
        states: list[Any] = [each for row in query.recentProgress for each in row.stateOperators]
        dropped.extend(each.numRowsDroppedByWatermark for each in states)

    StreamRun(stream, spark, look).run(Until.DRAINED)

    summary = summarize(read_idle_events(stream.events))
    assert sum(dropped) == 0
    assert sum(count > 0 for count in stream.written.values()) > 1  # not only in the last batch
    assert (summary.events, summary.sha256) == (events, sha256)
    assert sum(stream.written.values()) == events


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_stream_continues_after_a_run(
    one_session: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two runs, with bad and late rows, give the result of one run over the rows in time."""
    arriving, out = tmp_path / "in", tmp_path / "out"
    arriving.mkdir()
    command = ["idle", str(arriving), "--stream", "--key", "key", "--time", "t", "--unit", "ms"]
    command += ["--timeout", "0.01", "--max-lateness", "0.02", "--latest", "99999", "--json"]
    command += ["--shards", "2", "--out", str(out), "--once"]
    first = [(100, "a"), (90, "b"), (110, "a"), (105, "c")]
    second = [(130, "a"), (91, "b"), (115, "c")]  # 91 is late by 19, within the bound
    third = [(300, "d"), (125, "a"), (140, "é,")]
    lost = [(108, "a")]  # more than 20 behind 130
    reports: list[dict[str, int | str]] = []

    write_rows(arriving / "1.csv", [*first, ("88888888888888", "a"), ("-5", "a"), ("x", "a")])
    assert run(command) == 0
    reports.append(json.loads(capsys.readouterr().out))
    write_rows(arriving / "2 é%20+.csv", second)
    (arriving / "2b.csv.gz").write_bytes(gzip.compress(b"key,t\n"))
    assert run(command) == 0
    reports.append(json.loads(capsys.readouterr().out))
    write_rows(arriving / "3.csv", [*third, *lost])
    assert run([*command[:-1], "--drain"]) == 0
    printed = capsys.readouterr()
    reports.append(json.loads(printed.out))

    wanted = summarize(idle_events(sorted(first + second + third), 10))
    rows = [first, second, third + lost]
    assert [report["rows"] for report in reports] == [len(each) for each in rows]
    assert [report["rejected"] for report in reports] == [3, 0, 0]
    assert [report["late"] for report in reports] == [0, 0, 1]
    assert [report["ended"] for report in reports] == ["once", "once", "drained"]
    assert (reports[2]["total_events"], reports[2]["sha256"]) == (wanted.events, wanted.sha256)
    assert pq.read_table(out / "rejects").num_rows == 3
    days = [*out.glob("events/batch_id=*/day=*")]
    assert {(day.name, len([*day.glob("*.parquet")])) for day in days} == {("day=1970-01-01", 1)}
    assert "1 row came later than --max-lateness and was dropped\n" in printed.err
    assert run(command) == 2
    assert "this stream has been flushed" in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_batch_writes_only_changed_state(spark: "SparkSession", tmp_path: Path) -> None:
    """If one of 20,000 open keys is touched, the state store gets only that key."""
    from aiowheel.jobs.idle.stream import IdleStream
    from aiowheel.jobs.spark.stream_run import StreamRun, Until

    folder = tmp_path / "in"
    folder.mkdir()
    keys = [f"client-{number * 7919 % 1000003}" for number in range(20_000)]
    tables = [
        pa.table({"key": keys, "t": range(20_000)}),
        pa.table({"key": keys[:1], "t": [30_000]}),
    ]
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet")
        os.utime(folder / f"{number}.parquet", (1e9 + number, 1e9 + number))
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    files = touch_files(Unit.MS)
    stream = IdleStream(folder, tmp_path / "out", checkpoint, files, 10**9, 0, 4, 1)

    StreamRun(stream, spark).run(Until.ONCE)

    written: dict[int, int] = {}  # bytes, by the version that a micro-batch writes
    for log in checkpoint.folder.glob("state/0/*/*.changelog"):
        version = int(log.name.partition(".")[0].partition("_")[0])
        written[version] = written.get(version, 0) + log.stat().st_size
    assert written[1] > 100_000
    assert sum(size for version, size in written.items() if version > 1) < 10_000


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_flush_does_not_wait_for_the_interval(spark: "SparkSession", tmp_path: Path) -> None:
    """Of a stream with a micro-batch per day; it has also processed the rows that came since."""
    from aiowheel.jobs.idle.stream import IdleStream, read_idle_events
    from aiowheel.jobs.spark.stream_run import StreamRun, Until

    folder, checkpoint = tmp_path / "in", Checkpoint(tmp_path / "checkpoint")
    folder.mkdir()
    write_rows(folder / "1.csv", [(100, "a")])
    stream = IdleStream(
        folder,
        tmp_path / "out",
        checkpoint,
        touch_files(Unit.S),
        timeout=30,
        max_lateness_ms=0,
        shards=2,
        interval_ms=86_400_000,
    )

    def look(_query: "StreamingQuery") -> None:
        if checkpoint.last_finished_batch() >= 0 and not checkpoint.flush_requested():
            write_rows(folder / "2.csv", [(200, "b")])
            checkpoint.request_flush()

    assert StreamRun(stream, spark, look).run(Until.STOPPED) is Until.DRAINED

    assert list(read_idle_events(stream.events)) == [(130, "a"), (230, "b")]


def test_a_wrong_time_does_not_move_the_watermark(tmp_path: Path) -> None:
    """By default a time more than a day in the future is rejected; the rejects can be read."""
    file = tmp_path / "a.csv"
    write_rows(file, [(5, "a"), (9_999_999_999, "a")])
    read = touch_files(Unit.S).reader(tmp_path / "rejects", 16)

    paths = pa.RecordBatch.from_pydict({"path": [f"file:{file}"]})
    rows = [row for batch in read(iter([paths])) for row in batch.to_pylist()]

    touches, bad = rows
    assert (touches["latest"], touches["count"], touches["rejected"]) == (5, 1, 0)
    assert list(unpack(touches["pack"])) == [(5, "a")]
    assert (bad["pack"], bad["rejected"]) == (None, 1)
    (reject,) = pq.read_table(tmp_path / "rejects").to_pylist()
    assert reject["reason"].startswith("time '9999999999' is beyond ")
    assert (reject["source"], reject["line"], reject["used"]) == (str(file), 3, False)


def test_a_repeated_file_without_rejects_has_no_file_of_rejects(tmp_path: Path) -> None:
    """The first attempt rejected a row that the next run, with a later `--latest`, uses."""
    file = tmp_path / "a.csv"
    write_rows(file, [(5, "a"), (50, "a")])
    paths = pa.RecordBatch.from_pydict({"path": [f"file:{file}"]})
    for latest, count in ((10, 1), (100, 0)):
        files = replace(touch_files(Unit.S), latest=latest)
        rows = [
            row
            for batch in files.reader(tmp_path / "rejects", 16)(iter([paths]))
            for row in batch.to_pylist()
        ]
        assert rows[-1]["rejected"] == count
        assert len(list((tmp_path / "rejects").iterdir())) == count


def test_two_attempts_of_a_task_write_no_common_file(tmp_path: Path) -> None:
    """Of a slow task Spark starts a second attempt, and kills one when the other has ended."""
    rejects = [Reject("a.csv", line, "bad", "x" * 9, used=False) for line in range(10_001)]
    first, second = (_RejectsFile(tmp_path / "a.csv", tmp_path / "rejects") for _ in range(2))
    with pytest.raises(KeyboardInterrupt), second:
        with first:
            for each in rejects:
                first.put(each)
            for each in rejects[:10_000]:
                second.put(each)
        raise KeyboardInterrupt

    (file,) = (tmp_path / "rejects").iterdir()
    assert pq.read_table(file)["line"].to_pylist() == list(range(10_001))


@pytest.mark.parametrize("text", ["", "[]", '{"job": "id'])
def test_damaged_settings_are_reported(tmp_path: Path, text: str) -> None:
    """A loss of power can leave such files."""
    (tmp_path / "aiowheel.json").write_text(text)

    with pytest.raises(BadInputError, match=r"aiowheel\.json: damaged"):
        Checkpoint(tmp_path).open({"job": "idle"})
    with pytest.raises(BadInputError, match=r"aiowheel\.json: damaged"):
        Checkpoint(tmp_path).job()


def test_settings_that_the_stream_did_not_store_are_accepted(tmp_path: Path) -> None:
    """A stream can continue if a later release stores more settings."""
    checkpoint = Checkpoint(tmp_path)
    checkpoint.open({"job": "idle", "timeout": 30})

    checkpoint.open({"job": "idle", "folder": "in", "timeout": 30})


def test_a_checkpoint_keeps_its_settings(tmp_path: Path) -> None:
    """Another timeout would give a result that fits neither timeout."""
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    checkpoint.open({"timeout": 30})
    checkpoint.open({"timeout": 30})

    with pytest.raises(BadInputError, match="was made with timeout 30, not 31"):
        checkpoint.open({"timeout": 31})


def test_a_flush_can_be_requested_by_another_process(tmp_path: Path) -> None:
    """A flush can be requested for a stream; another folder is refused."""
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    with pytest.raises(BadInputError, match="no checkpoint of a stream"):
        checkpoint.request_flush()
    checkpoint.open({})
    assert not checkpoint.flush_requested()

    checkpoint.request_flush()

    assert checkpoint.flush_requested()

    checkpoint.end()
    with pytest.raises(BadInputError, match="this stream has been flushed already"):
        checkpoint.request_flush()


def touch_files(unit: Unit) -> TouchFiles:
    """Return files with the usual columns."""
    rules = RowRules("key", "t", TimeFormat.EPOCH, unit)
    return TouchFiles(rules, format=None, latest=None, limit=LATEST_TIME)


def write_rows(file: Path, rows: list[tuple[object, str]] | list[tuple[int, str]]) -> None:
    """Write a CSV file that appears complete."""
    hidden = file.with_name(f".{file.name}")
    lines = "".join(f'"{key}",{t}\n' for t, key in rows)
    hidden.write_text(f"key,t\n{lines}", encoding="utf-8")
    hidden.rename(file)
