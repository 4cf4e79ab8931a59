"""Faults of a stream: no row is lost without a report."""

import gzip
import json
import os
import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from aiowheel.cli import run
from aiowheel.cli._idle_stream_report import StreamTally, stream_report
from aiowheel.errors import AiowheelError, BadInputError
from aiowheel.readers import Format, TimeFormat, Unit
from aiowheel.readers._row_rules import RowRules

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq

from aiowheel.jobs.idle.stream import IdleStream, read_idle_events
from aiowheel.jobs.idle.touch_files import TouchFiles
from aiowheel.jobs.operations.files import write_events, write_operations
from aiowheel.jobs.operations.frames import LIST_READER
from aiowheel.jobs.operations.shard_state import count_in_state
from aiowheel.jobs.operations.stages import STATE_NAME, TAKEN_COUNTS
from aiowheel.jobs.operations.stream import PurgatoryStream, Written
from aiowheel.jobs.schemas import OUTCOMES
from aiowheel.jobs.spark import query
from aiowheel.jobs.spark.checkpoint import Checkpoint
from aiowheel.jobs.spark.session import changed_settings
from aiowheel.jobs.spark.sinks import read_batches
from aiowheel.jobs.spark.source_files import files_of_batch, refuse_missing_files
from aiowheel.jobs.spark.stream_run import Phase, StreamRun, Until
from aiowheel.jobs.spark.stream_settings import check_session
from aiowheel.rules import NEVER, NO_VALUE, Event, Operation

from .conftest import ODD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

spark_test = pytest.mark.usefixtures("one_session")
pytestmark = pytest.mark.timeout(400)

IN_9999 = 253_402_300_799_000  # ms; databases use this time for "never"
NO_SPARK: Any = None  # local files need no session
RunCommand = Callable[[list[str]], tuple[int, dict[str, Any], str]]


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """Run a command; return its exit code, its JSON and its stderr."""

    def run_one(command: list[str]) -> tuple[int, dict[str, Any], str]:
        code = run(command)
        printed = capsys.readouterr()
        errors = [row for row in printed.err.splitlines() if not row.startswith('{"batch": ')]
        return code, json.loads(printed.out or "{}"), "\n".join(errors)

    return run_one


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a stream, whose name contains pattern characters."""
    place = tmp_path / ODD
    place.mkdir()
    return place


@pytest.fixture
def idle(folder: Path) -> list[str]:
    """Return a command over a folder of touches."""
    (folder / "in").mkdir()
    command = ["idle", str(folder / "in"), "--stream", "--key", "key", "--time", "t"]
    return [*command, "--timeout", "30", "--shards", "1", "--json", "--out", str(folder / "out")]


@pytest.fixture
def purgatory(folder: Path) -> list[str]:
    """Return a command over folders of operations and events."""
    for name in ("ops", "events"):
        (folder / name).mkdir()
    command = ["purgatory", str(folder / "ops"), str(folder / "events"), "--stream"]
    return [*command, "--shards", "1", "--json", "--out", str(folder / "out")]


def put(file: Path, *rows: dict[str, object]) -> None:
    """Write a file of JSON lines that appears complete."""
    hidden = file.with_name(f".{file.name}")
    hidden.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    hidden.rename(file)


def touch(key: str, t: int) -> dict[str, object]:
    """Return a touch of a key."""
    return {"key": key, "t": str(t)}


def operation(id_: str, created: int, **more: object) -> dict[str, object]:
    """Return an operation that waits for any of two keys."""
    return {"id": id_, "keys": ["a", "b"], "created": created} | more


def outcomes(folder: Path) -> list[tuple[object, ...]]:
    """Return all outcomes that a stream has written."""
    table = read_batches(folder / "out" / "outcomes", OUTCOMES)
    return sorted(tuple(row.values()) for row in table.to_pylist())


_SLOW = pytest.mark.spark_cluster  # half a minute each


# --- the end ----------------------------------------------------------------------------------


class DeathError(Exception):
    """An error that simulates SIGKILL."""


def kill_in(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Let the driver die at the start of a step of the end."""

    def die(_self: Checkpoint) -> None:
        raise DeathError

    monkeypatch.setattr(Checkpoint, step, die)


@pytest.mark.spark
@pytest.mark.slow
@spark_test
@pytest.mark.parametrize("job", ["idle", pytest.param("purgatory", marks=_SLOW)])
def test_only_processed_files_are_deleted(
    job: str,
    request: pytest.FixtureRequest,
    run_command: RunCommand,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file is deleted when the next micro-batch begins; none while the stream ends."""
    command: list[str] = request.getfixturevalue(job)
    command = [*command, "--files-per-batch", "1", "--delete-files"]
    source = folder / ("in" if job == "idle" else "ops")

    def arrive(number: int) -> None:
        row = touch("a", number) if job == "idle" else operation(f"o{number}", number)
        put(source / f"{number}.ndjson", row)
        os.utime(source / f"{number}.ndjson", (1e9 + number, 1e9 + number))  # sets the order

    def left() -> list[str]:
        return sorted(file.stem for file in source.iterdir())

    arrive(1)
    arrive(2)
    assert run_command([*command, "--once"])[0] == 0
    assert "1" not in left()  # the last file is deleted when another micro-batch begins

    arrive(3)
    with monkeypatch.context() as patch, pytest.raises(DeathError):
        kill_in(patch, "send_flush")
        run([*command, "--drain"])
    arrive(4)
    code, found, _ = run_command([*command, "--drain"])
    assert (code, found["ended"], found["rows"]) == (0, "drained", 0)
    assert "4" in left()


@_SLOW
@spark_test
@pytest.mark.parametrize("step", ["send_flush", "end"])
def test_an_idle_stream_finishes_an_interrupted_end(
    step: str,
    idle: list[str],
    run_command: RunCommand,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver dies before or after its flush row is read; later rows are not read."""
    put(folder / "in" / "0.ndjson", touch("a", 100), touch("b", 200))
    with monkeypatch.context() as patch, pytest.raises(DeathError):
        kill_in(patch, step)
        run([*idle, "--drain"])
    put(folder / "in" / "1.ndjson", touch("c", 300))

    code, report, errors = run_command([*idle, "--once"])

    assert (code, errors) == (0, "")
    assert (report["ended"], report["rows"], report["late"]) == ("drained", 0, 0)
    assert list(read_idle_events(folder / "out" / "events")) == [(130, "a"), (230, "b")]
    assert "this stream has been flushed" in run_command(idle)[2]


@pytest.mark.spark
@pytest.mark.slow
@spark_test
@pytest.mark.parametrize("step", ["send_flush", pytest.param("end", marks=_SLOW)])
def test_a_purgatory_stream_finishes_an_interrupted_end(
    step: str,
    purgatory: list[str],
    run_command: RunCommand,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Operations without a deadline stay pending, and are counted and listed."""
    put(
        folder / "ops" / "0.ndjson",
        operation("met", 100, keys=["c"]),
        operation("in time", 100, deadline=500),
        operation("in 9999", 100, keys=["c", "d"], mode="all", deadline=IN_9999),
        operation("never", 100),
    )
    put(folder / "events" / "0.ndjson", {"key": "c", "time": 150})
    with monkeypatch.context() as patch, pytest.raises(DeathError):
        kill_in(patch, step)
        run([*purgatory, "--drain"])
    put(folder / "ops" / "1.ndjson", operation("z", 700))
    put(folder / "events" / "1.ndjson", {"key": "a", "time": 800})

    code, report, errors = run_command([*purgatory, "--once"])

    assert (code, errors) == (0, "")
    assert (report["ended"], report["rows"], report["late"]) == ("drained", 0, 0)
    assert report["pending"] == 1
    assert outcomes(folder) == [
        ("in 9999", "expired", None, IN_9999),
        ("in time", "expired", None, 500),
        ("met", "completed", "c", 150),
    ]
    _, waiting, _ = run_command(
        ["pending", "--checkpoint", str(folder / "out" / "checkpoint"), "--json"]
    )
    assert [row["id"] for row in waiting["operations"]] == ["never"]


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.slow
@spark_test
def test_once_ends_while_files_keep_arriving(
    idle: list[str], run_command: RunCommand, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run processes the files present at its start; `flush` ends the stream in the next."""
    idle += ["--files-per-batch", "100000"]  # on a busy machine thousands of files arrive
    over = threading.Event()
    put(folder / "in" / "first.ndjson", touch("first", 1))
    written = 1

    def keep_writing() -> None:
        nonlocal written
        while not over.wait(0.1):
            put(folder / "in" / f"{written:06}.ndjson", touch(f"k{written}", 1))
            written += 1

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        code, report, _ = run_command([*idle, "--once"])
    finally:
        over.set()
        writer.join()
    assert (code, report["ended"]) == (0, "once")
    assert 1 <= report["rows"] < written

    checkpoint = folder / "out" / "checkpoint"
    assert run(["flush", "--checkpoint", str(checkpoint)]) == 0
    capsys.readouterr()
    code, rest, _ = run_command([*idle, "--once"])

    assert (code, rest["ended"], rest["late"]) == (0, "drained", 0)
    assert report["rows"] + rest["rows"] == written
    assert rest["total_events"] == written


# --- files ------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.slow
@spark_test
def test_an_idle_stream_waits_for_its_files(
    idle: list[str], run_command: RunCommand, folder: Path
) -> None:
    """A damaged or missing file stops the stream by name; after the repair all rows count."""
    good, bad = folder / "in" / "0 é%.ndjson", folder / "in" / "1.ndjson.gz"
    put(good, touch("a", 100))
    whole = gzip.compress(json.dumps(touch("b", 120)).encode())
    bad.write_bytes(whole[:-9])

    for _ in range(2):
        code, _, errors = run_command([*idle, "--once"])
        assert code == 2
        assert errors.startswith(f"aiowheel: {bad}: ")
        assert "\n" not in errors

    away = good.rename(folder / "away")
    code, _, errors = run_command([*idle, "--once"])
    assert code == 1
    assert errors.startswith(f"aiowheel: {good}: was there when Spark listed the folder")

    away.rename(good)
    bad.write_bytes(whole)
    code, report, errors = run_command([*idle, "--drain"])
    assert (code, errors) == (0, "")
    assert (report["rows"], report["rejected"]) == (2, 0)
    assert list(read_idle_events(folder / "out" / "events")) == [(130, "a"), (150, "b")]


@pytest.mark.spark
@pytest.mark.slow
@spark_test
@pytest.mark.parametrize(
    "flaw",
    # `test_odd_paths` has a stream that refuses a column of timestamps.
    ["gz", *(pytest.param(flaw, marks=_SLOW) for flaw in ("timestamp", "float", "random", "cut"))],
)
def test_a_purgatory_stream_waits_for_its_files(
    flaw: str, purgatory: list[str], run_command: RunCommand, folder: Path
) -> None:
    """Each kind of damage gives one line with the file's name."""
    suffix = "ndjson.gz" if flaw == "gz" else "parquet"
    bad = folder / "ops" / f"0.{suffix}"
    columns: dict[str, Any] = {"id": ["x", "y"], "keys": [["a"], ["a"]], "created": [100, 1_000]}
    columns["deadline"] = [500, None]
    table = pa.table(columns)
    if flaw == "gz":
        whole = gzip.compress("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()).encode())
        bad.write_bytes(whole[:-9])
        put(folder / "events" / "0.ndjson", {"key": "c", "time": 1_000})
    else:
        event = pa.table({"key": ["c"], "time": [1_000], "value": [1]})
        pq.write_table(event, folder / "events" / "0.parquet")
        pq.write_table(table, bad)
        whole = bad.read_bytes()
        if flaw == "float":
            pq.write_table(pa.table(columns | {"created": [100.5, 1_000.0]}), bad)
        if flaw == "timestamp":
            created = pa.array([100, 1_000], pa.timestamp("ms"))
            pq.write_table(table.set_column(2, "created", created), bad)
        if flaw == "random":
            bad.write_bytes(bytes(range(256)) * 4)
        if flaw == "cut":
            bad.write_bytes(whole[: len(whole) // 2])

    code, _, errors = run_command([*purgatory, "--once"])
    assert code == 2, errors
    assert errors.startswith(f"aiowheel: {bad}: ")
    assert "\n" not in errors

    bad.write_bytes(whole)
    code, report, errors = run_command([*purgatory, "--once"])
    assert (code, errors) == (0, "")
    found = (report["operations"], report["rejected"], report["pending"])
    assert found == (2, 0, 1), report
    assert outcomes(folder) == [("x", "expired", None, 500)]


@pytest.mark.spark
@pytest.mark.slow
@spark_test
def test_an_empty_file_takes_the_place_of_a_damaged_one(
    purgatory: list[str], run_command: RunCommand, folder: Path
) -> None:
    """A file without bytes has no rows, also if it was empty from the start."""
    columns: dict[str, Any] = {"id": ["x", "y"], "keys": [["a"], ["a"]], "created": [100, 1_000]}
    pq.write_table(pa.table(columns | {"deadline": [500, None]}), folder / "ops" / "0.parquet")
    (folder / "ops" / "1.parquet").touch()
    write_events(folder / "events" / "1.parquet", [Event("c", 1_000, NO_VALUE)])
    damaged = folder / "events" / "0.parquet"
    damaged.write_bytes(b"PAR1")
    assert run_command([*purgatory, "--once"])[0] == 2

    damaged.write_bytes(b"")
    code, report, errors = run_command([*purgatory, "--once"])

    assert (code, errors) == (0, "")
    found = (report["operations"], report["events"], report["rejected"])
    assert found == (2, 1, 0)
    assert outcomes(folder) == [("x", "expired", None, 500)]


@pytest.mark.spark
@pytest.mark.slow
@spark_test
@pytest.mark.parametrize("entry", ["commits/0", "sources/0/1"])
def test_two_runs_of_one_checkpoint_are_named(
    entry: str,
    idle: list[str],
    run_command: RunCommand,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second run to finish a micro-batch ends, and so does the second one to take a file."""
    for number in range(2):
        put(folder / "in" / f"{number}.ndjson", touch("a", 100))

    def be_first(_spark: object, checkpoint: Path, _batch_id: int) -> set[str]:
        (checkpoint / entry).write_text('v1\n{"nextBatchWatermarkMs":0}')
        return set()

    monkeypatch.setattr(query, "refuse_missing_files", be_first)
    code, _, errors = run_command([*idle, "--files-per-batch", "1", "--once"])

    assert code == 1
    assert errors == (
        "aiowheel: another run uses the same checkpoint: start again when that run has ended"
    )


@pytest.mark.spark
@pytest.mark.slow
@spark_test
def test_a_file_from_the_future_hides_no_other_files(
    idle: list[str], run_command: RunCommand, folder: Path
) -> None:
    """A file with a wrong time of modification does not make files of today too old."""
    for number, year in enumerate((1910, 2200)):
        file = folder / "in" / f"{number}.ndjson"
        put(file, touch("a", number))
        time = datetime(year, 1, 1, tzinfo=UTC).timestamp()
        os.utime(file, (time, time))

    first = run_command([*idle, "--once"])[1]
    put(folder / "in" / "today.ndjson", touch("a", 2))
    second = run_command([*idle, "--once"])[1]

    assert (first["rows"], second["rows"]) == (2, 1)


@pytest.mark.spark
@pytest.mark.slow
@spark_test
def test_the_late_rows_of_a_backlog_are_explained(
    idle: list[str], run_command: RunCommand, folder: Path
) -> None:
    """Files come by their modification times, here those of a copy in reverse order."""
    for number, t in enumerate((300, 200, 100)):
        file = folder / "in" / f"{t}.ndjson"
        put(file, touch("a", t))
        os.utime(file, (1e9 + number, 1e9 + number))

    code, report, errors = run_command([*idle, "--files-per-batch", "2", "--once"])

    assert (code, report["rows"], report["late"]) == (0, 3, 1)
    assert errors == (
        "aiowheel: 1 row came later than --max-lateness and was dropped; the first micro-batch "
        "was full (--files-per-batch 2): a backlog needs a higher number"
    )


def write_checkpoint(folder: Path, offsets: dict[int, str], logs: dict[str, list[str]]) -> None:
    """Write a checkpoint like Spark."""
    for name in ("offsets", "sources/0"):
        (folder / name).mkdir(parents=True)
    for batch, line in offsets.items():
        (folder / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{line}\n-')
    for name, lines in logs.items():
        (folder / "sources" / "0" / name).write_text("\n".join(["v1", *lines]))


def entry(path: Path, number: int) -> str:
    """Return a line of Spark's log of files."""
    return json.dumps({"path": path.as_uri(), "timestamp": 1, "batchId": number})


def test_the_files_of_a_batch_are_those_between_two_offsets(tmp_path: Path) -> None:
    """One or several entries, also of a compacted log, are read; missing files are named."""
    files = [tmp_path / f"{number} é%20+.csv" for number in range(4)]
    offsets = {0: '{"logOffset":0}', 1: '{"logOffset":3}'}
    lines = [entry(file, number) for number, file in enumerate(files)]
    logs = {"0": lines[:1], "1": lines[1:2], "2.compact": lines[:3], "3": lines[3:]}
    write_checkpoint(tmp_path / "checkpoint", offsets, logs)

    assert files_of_batch(tmp_path / "checkpoint", 0) == {str(files[0])}
    assert files_of_batch(tmp_path / "checkpoint", 1) == {*map(str, files[1:])}
    files[2].touch()
    with pytest.raises(AiowheelError, match=r"1 é%20\+.csv and 1 more files: was there"):
        refuse_missing_files(NO_SPARK, tmp_path / "checkpoint", 1)
    files[1].touch()
    files[3].touch()
    refuse_missing_files(NO_SPARK, tmp_path / "checkpoint", 1)


def test_a_topic_may_have_the_name_of_an_offset(tmp_path: Path) -> None:
    """A topic has no files."""
    write_checkpoint(tmp_path, {0: '{"logOffset":{"0":5}}'}, {})

    assert files_of_batch(tmp_path, 0) == set()


@pytest.mark.parametrize("name", ["offsets/0", "sources/0/0"])
def test_a_damaged_log_is_named(name: str, tmp_path: Path) -> None:
    """A loss of power can leave such a log."""
    write_checkpoint(tmp_path, {0: '{"logOffset":0}'}, {"0": [entry(tmp_path, 0)]})
    (tmp_path / name).write_text('v1\n{}\n{"pa')

    with pytest.raises(AiowheelError, match=f"{name}: damaged, and with it the checkpoint"):
        files_of_batch(tmp_path, 0)


@pytest.mark.parametrize("text", ["", "garbage"])
def test_damaged_metadata_of_spark_are_named(text: str, tmp_path: Path) -> None:
    """Spark itself would report a JSON parser's error."""
    checkpoint = Checkpoint(tmp_path)
    checkpoint.open({})
    (tmp_path / "metadata").write_text('{"id": "0"}')
    checkpoint.open({})

    (tmp_path / "metadata").write_text(text)

    with pytest.raises(BadInputError, match="metadata: damaged, and with it the checkpoint"):
        checkpoint.open({})


def test_half_offsets_are_named(tmp_path: Path) -> None:
    """A disk that loses power can leave such a file, and copies may lack Spark's checksums."""
    checkpoint = Checkpoint(tmp_path)
    offsets = {9: '{"logOffset":0}', 10: '{"logOffset":1}'}
    write_checkpoint(tmp_path, offsets, {"1": ["{}"]})
    checkpoint.open({})
    newest = tmp_path / "offsets" / "10"
    whole = newest.read_text()

    for size in range(len(whole)):
        newest.write_text(whole[:size])
        with pytest.raises(BadInputError, match="offsets/10: damaged, and with it the checkpoint"):
            checkpoint.check({})
    newest.write_bytes(b"v1\n\xff")
    with pytest.raises(BadInputError, match="offsets/10: damaged, and with it the checkpoint"):
        checkpoint.check({})

    newest.write_text(whole)
    checkpoint.check({})
    (tmp_path / "offsets" / "9").write_text("v1\n{")  # Spark reads this one, too
    with pytest.raises(BadInputError, match="offsets/9: damaged, and with it the checkpoint"):
        checkpoint.check({})


def test_missing_settings_are_named(tmp_path: Path) -> None:
    """Otherwise a run with another timeout would be taken for the first one."""
    idle = idle_stream(tmp_path)
    idle.checkpoint.open(idle.settings)
    settings = idle.checkpoint.folder / "aiowheel.json"
    (idle.checkpoint.folder / "metadata").write_text('{"id": "0"}')
    settings.unlink()

    with pytest.raises(BadInputError, match=r"aiowheel\.json: missing, and the checkpoint is dama"):
        idle.checkpoint.open(replace(idle, timeout=31).settings)

    assert not settings.exists()


@pytest.fixture
def finished(tmp_path: Path) -> Checkpoint:
    """Return a checkpoint of two sources of files after micro-batch 12."""
    logs = {"12": [entry(tmp_path / "1.csv", 12)]}
    write_checkpoint(tmp_path, {11: '{"logOffset":11}', 12: '{"logOffset":12}'}, logs)
    newest = tmp_path / "offsets" / "12"
    newest.write_text(f'{newest.read_text()[:-1]}{{"logOffset":0}}\n{{"logOffset":12}}')
    for name in ("sources/1/0", "commits/12"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("v1\n{}")
    checkpoint = Checkpoint(tmp_path)
    checkpoint.open({})
    return checkpoint


@pytest.mark.parametrize("name", ["offsets/12", "sources/0/12", "sources/1/0"])
def test_a_missing_log_is_named(finished: Checkpoint, name: str) -> None:
    """Spark would skip the rows of later files, or repeat a micro-batch with other rows."""
    (finished.folder / name).unlink()

    with pytest.raises(BadInputError, match=f"{name}: missing, and the checkpoint is damaged"):
        finished.open({})


def test_a_missing_folder_of_a_log_is_named(finished: Checkpoint) -> None:
    """It is not taken for the second offset of a source that a query uses twice."""
    shutil.rmtree(finished.folder / "sources" / "1")

    with pytest.raises(BadInputError, match="sources/1/0: missing, and the checkpoint is damaged"):
        finished.open({})


@pytest.mark.parametrize("name", ["commits/12", "sources/0/12", "sources/1/0"])
def test_half_a_log_is_named(finished: Checkpoint, name: str) -> None:
    """Spark itself would report a JSON parser's error."""
    file = finished.folder / name
    whole = file.read_text()

    for size in range(len(whole)):
        file.write_text(whole[:size])
        with pytest.raises(BadInputError, match=f"{name}: damaged, and with it the checkpoint"):
            finished.check({})


def test_a_log_may_be_ahead_and_compacted(finished: Checkpoint) -> None:
    """Spark writes it before the offsets, and replaces each tenth entry by all earlier ones."""
    log = finished.folder / "sources" / "0"
    (log / "12").rename(log / "19.compact")

    finished.open({})


def test_offsets_of_a_later_format_are_left_to_spark(tmp_path: Path) -> None:
    """The command cannot know whether such a file is whole."""
    checkpoint = Checkpoint(tmp_path)
    write_checkpoint(tmp_path, {0: ""}, {})
    (tmp_path / "offsets" / "0").write_text("v2\nnot JSON")

    checkpoint.check({})


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.thorough  # `test_stages` has the same question without Spark
def test_the_state_holds_no_more_than_what_is_pending(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """Thousands of operations without a deadline end by one of two keys; no copy remains."""
    for name in ("ops", "events"):
        (tmp_path / name).mkdir()
    parts, count = 2, 2_000  # the last part, and one operation in a hundred, are never met
    for part in range(parts):
        numbers = range(part * count, (part + 1) * count)
        operations = [
            Operation(f"o{n}", (f"{n}a", f"{n}b"), (NO_VALUE,) * 2, 1, n, NEVER) for n in numbers
        ]
        events = [Event(f"{n}a", n, NO_VALUE) for n in numbers if n % 100]
        files = [tmp_path / name / f"{part}.parquet" for name in ("ops", "events")]
        write_operations(files[0], operations)
        write_events(files[1], events)
        for file in files:
            os.utime(file, (1e9 + part, 1e9 + part))  # Spark reads files by modification time
    write_events(tmp_path / "events" / "9.parquet", [Event("z", parts * count, NO_VALUE)])
    write_operations(
        tmp_path / "ops" / "9.parquet",
        [Operation("last", ("z",), (NO_VALUE,), 1, parts * count, NEVER)],
    )
    checkpoint = Checkpoint(tmp_path / "ck")
    places = (tmp_path / "ops", tmp_path / "events", tmp_path / "out")
    stream = PurgatoryStream(*places, checkpoint, Unit.S, shards=2, files_per_batch=1)

    StreamRun(stream, spark).run(Until.ONCE)

    pending = stream.count_pending(spark)
    assert pending == parts * count // 100 + 1
    assert copies_in_state(spark, checkpoint.folder) <= 2 * pending + count


def copies_in_state(spark: "SparkSession", checkpoint: Path) -> int:
    """Count the copies of operations in the first stage."""
    state = spark.read.format("statestore").option("operatorId", 1)
    values = state.option("stateVarName", STATE_NAME).load(str(checkpoint)).select("value.*")
    return sum(count_in_state(row.version, bytes(row.data)) for row in values.collect())


# --- settings and sums ------------------------------------------------------------------------


def idle_stream(folder: Path) -> IdleStream:
    """Return a stream that is not started."""
    rules = RowRules("key", "t", TimeFormat.EPOCH, Unit.S)
    files = TouchFiles(rules, Format.CSV, None, 10**9)
    return IdleStream(folder / "in", folder / "out", Checkpoint(folder / "ck"), files, 30, 0)


def with_rules(stream: IdleStream, **changed: Any) -> IdleStream:
    """Return the stream with other rules for its rows."""
    rules = replace(stream.files.rules, **changed)
    return replace(stream, files=replace(stream.files, rules=rules))


def purgatory_stream(folder: Path) -> PurgatoryStream:
    """Return a stream that is not started."""
    places = (folder / "ops", folder / "events", folder / "out")
    return PurgatoryStream(*places, Checkpoint(folder / "ck"), Unit.S)


def test_a_checkpoint_belongs_to_its_folders(tmp_path: Path) -> None:
    """With another input Spark would fail in mid-batch; another output would be incomplete."""
    other = tmp_path / "other"
    idle, purgatory = idle_stream(tmp_path / "1"), purgatory_stream(tmp_path / "2")
    for checkpoint, settings, name, others in (
        (idle.checkpoint, idle.settings, "out", replace(idle, out=other).settings),
        (idle.checkpoint, idle.settings, "folder", replace(idle, folder=other).settings),
        (purgatory.checkpoint, purgatory.settings, "out", replace(purgatory, out=other).settings),
        (
            purgatory.checkpoint,
            purgatory.settings,
            "events",
            replace(purgatory, events=other).settings,
        ),
    ):
        checkpoint.open(settings)
        ending = re.escape(f", not {other}")
        with pytest.raises(BadInputError, match=f"was made with {name} .*{ending}"):
            checkpoint.open(others)


def test_a_changed_unit_is_named_as_such(tmp_path: Path) -> None:
    """The error names the unit, although the timeout in that unit has changed as well."""
    idle = idle_stream(tmp_path)
    idle.checkpoint.open(idle.settings)

    milliseconds = replace(with_rules(idle, unit=Unit.MS), timeout=30_000)
    with pytest.raises(BadInputError, match="was made with unit s, not ms"):
        idle.checkpoint.check(milliseconds.settings)


def test_a_changed_timeout_has_its_unit(tmp_path: Path) -> None:
    """The command line takes seconds, and the setting is in the unit of the table."""
    idle = idle_stream(tmp_path)
    milliseconds = replace(with_rules(idle, unit=Unit.MS), timeout=30_000)
    milliseconds.checkpoint.open(milliseconds.settings)

    with pytest.raises(BadInputError, match="was made with timeout 30000 ms, not 31000 ms"):
        idle.checkpoint.check(replace(milliseconds, timeout=31_000).settings)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"key": "device"}, "key key, not device: go on with that"),
        ({"key": ("key", "device")}, r"key key, not \['key', 'device'\]"),
        ({"time": "at"}, "time t, not at"),
        ({"time_format": TimeFormat.DECIMAL}, "time_format epoch, not decimal"),
    ],
)
def test_other_columns_of_an_idle_stream_are_refused(
    tmp_path: Path, changed: dict[str, Any], text: str
) -> None:
    """With another key, the open keys would become idle although their rows still arrive."""
    idle = idle_stream(tmp_path)
    idle.checkpoint.open(idle.settings)

    with pytest.raises(BadInputError, match=f"was made with {text}"):
        idle.checkpoint.check(with_rules(idle, **changed).settings)


@pytest.mark.parametrize("key", ["key", ("key",), ("key", "device")])
def test_the_same_columns_of_an_idle_stream_are_accepted(
    tmp_path: Path, key: str | tuple[str, ...]
) -> None:
    """A stored key is equal to the given one, whether it has one name or several."""
    idle = with_rules(idle_stream(tmp_path), key=key)
    idle.checkpoint.open(idle.settings)

    idle.checkpoint.open(idle.settings)


def test_an_idle_stream_of_an_earlier_release_continues(tmp_path: Path) -> None:
    """Earlier releases stored neither the columns nor the time format."""
    idle = idle_stream(tmp_path)
    new = {"key", "time", "time_format"}
    idle.checkpoint.open({name: value for name, value in idle.settings.items() if name not in new})

    idle.checkpoint.open(idle.settings)


def test_other_shards_are_refused(tmp_path: Path) -> None:
    """Each key has its state in one shard."""
    for stream in (idle_stream(tmp_path / "1"), purgatory_stream(tmp_path / "2")):
        stream.checkpoint.open(stream.settings)
        with pytest.raises(BadInputError, match="was made with shards 16, not 32: go on with that"):
            stream.checkpoint.check(replace(stream, shards=32).settings)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "legal"),
    [
        ("spark.sql.streaming.noDataMicroBatches.enabled", "false", "true"),
        ("spark.sql.streaming.multipleWatermarkPolicy", "max", "min"),
    ],
)
def test_settings_that_would_lose_outcomes_are_refused(
    name: str, value: str, legal: str, spark: "SparkSession", tmp_path: Path
) -> None:
    """Without micro-batches for the watermark alone, a drained stream would leave keys open."""
    stream = idle_stream(tmp_path)
    stream.folder.mkdir()
    (stream.folder / "0.csv").write_text("key,t\na,1\n")
    before = str(spark.conf.get(name))
    spark.conf.set(name, value)
    try:
        with pytest.raises(BadInputError, match=f"{name} must be {legal} for streams, got {value}"):
            StreamRun(stream, spark).run(Until.DRAINED)
    finally:
        spark.conf.set(name, before)
    assert not stream.checkpoint.end_begun()


@pytest.mark.spark
@pytest.mark.slow
def test_a_session_may_have_local_timestamps(spark: "SparkSession", tmp_path: Path) -> None:
    """Its setting changes the meaning of the type ``timestamp`` in a schema."""
    stream = replace(idle_stream(tmp_path), shards=1)
    stream.folder.mkdir()
    (stream.folder / "0.csv").write_text("key,t\na,1\n")

    with changed_settings(spark, {"spark.sql.timestampType": "TIMESTAMP_NTZ"}):
        StreamRun(stream, spark).run(Until.DRAINED)

    assert list(read_idle_events(stream.events)) == [(31, "a")]


@pytest.mark.spark
@pytest.mark.slow
def test_one_session_runs_several_streams_of_a_job(spark: "SparkSession", tmp_path: Path) -> None:
    """Their names, which label metrics and log events, have the folders of the checkpoints."""
    places = [tmp_path / name for name in ("first", "second")]
    for folder, name in product(places, ("in", "ops", "events")):
        (folder / name).mkdir(parents=True)
    streams = [
        replace(stream, checkpoint=Checkpoint(folder / job))
        for folder in places
        for job, stream in (("idle", idle_stream(folder)), ("purgatory", purgatory_stream(folder)))
    ]
    queries: list[StreamingQuery] = []
    try:
        for stream in streams:
            stream.checkpoint.open(stream.settings)
            queries.append(stream.start(spark, Phase.FOLLOW))
    finally:
        for started in queries:
            started.stop()

    assert [started.name for started in queries] == [
        f"aiowheel-{stream.settings['job']} {stream.checkpoint.folder}" for stream in streams
    ]


def test_streams_that_start_together_leave_the_session_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start changes a setting of the session, which a start in another thread must not keep."""
    conf = FakeConf()
    session = cast("SparkSession", SimpleNamespace(conf=conf))
    first, second = (purgatory_stream(tmp_path / name) for name in ("first", "second"))
    is_second_here = threading.Event()
    found: list[dict[str, str]] = []

    class Lock:
        """A lock that shows when a thread waits for it."""

        def __init__(self) -> None:
            self._lock = threading.Lock()

        def __enter__(self) -> None:
            if not self._lock.acquire(blocking=False):
                is_second_here.set()
                self._lock.acquire()

        def __exit__(self, *_: object) -> None:
            self._lock.release()

    def start(stream: PurgatoryStream, *_: object) -> None:
        if stream is first:
            threads[1].start()
            is_second_here.wait()
        else:
            is_second_here.set()
            threads[0].join()
        found.append(dict(conf))

    monkeypatch.setattr("aiowheel.jobs.operations.stream._STARTING", Lock())
    monkeypatch.setattr(PurgatoryStream, "_start", start)
    threads = [
        threading.Thread(target=stream.start, args=(session, Phase.FOLLOW))
        for stream in (first, second)
    ]
    threads[0].start()
    for thread in threads:
        thread.join()

    assert found == [LIST_READER, LIST_READER]
    assert conf == {}


class FakeConf(dict[str, str]):
    """The settings of a session."""

    def set(self, name: str, value: str) -> None:
        """Change a setting."""
        self[name] = value

    def unset(self, name: str) -> None:
        """Remove a setting."""
        del self[name]


@pytest.mark.parametrize("version", ["4.0.0", "4.0.1"])
def test_releases_that_read_a_part_of_the_state_are_refused(version: str) -> None:
    """They fail after hours, once the state of a shard exceeds 64 KiB and the machine is busy."""
    with pytest.raises(BadInputError, match=f"Spark must be 4.0.2 or later .* got {version}, "):
        check_session(session_of(version), {})


@pytest.mark.parametrize("version", ["4.0.2", "4.1.0", "4.1.0-SNAPSHOT"])
def test_other_releases_are_accepted(version: str) -> None:
    """A vendor's release has another name, and may have the mend."""
    check_session(session_of(version), {})


def session_of(version: str) -> "SparkSession":
    """Return an object with the version of a session."""
    return cast("SparkSession", SimpleNamespace(version=version))


def test_the_report_counts_events_of_finished_batches_alone(tmp_path: Path) -> None:
    """A stop may interrupt a micro-batch after its events; the next run counts them again."""
    stream = idle_stream(tmp_path)
    (tmp_path / "ck" / "commits").mkdir(parents=True)
    (tmp_path / "ck" / "commits" / "0").touch()
    stream.written.update({0: 3, 1: 4})
    tally = StreamTally(lambda *_: None)

    report = stream_report(stream, str(tmp_path / "out"), Until.STOPPED, tally, 1.0)

    assert report.idle_events == 3


def test_batches_without_a_report_of_spark_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The query over Kafka that repeats a batch ends before Spark reports the batch."""
    batches = [
        SimpleNamespace(
            batchId=number,
            durationMs={"addBatch": 1, "triggerExecution": 2},
            observedMetrics={"touches": {"rejected": 1, "irregular": 0}, "taken": None},
        )
        for number in (4, 6)
    ]
    tally = StreamTally(lambda *_: None, last_batch=3)

    tally.take(cast("StreamingQuery", SimpleNamespace(recentProgress=batches)))
    tally.close(7)
    tally.close(7)

    assert (tally.batches, tally.rejected) == (2, 2)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        f"aiowheel: batch {number}: Spark sent no report, so its rows are not counted"
        for number in (5, 7)
    ]


def progress(batch: int, operations: int, events: int, *taken: tuple[int, int]) -> Any:
    """Return Spark's report on a micro-batch: the rows in packs, and the rows taken by shards."""
    shards = [
        {"shard": number, **dict(zip(TAKEN_COUNTS, counts, strict=True))}
        for number, counts in enumerate(taken)
    ]
    observed = {
        "operations_packed": {"packs": [{"number": 0, "count": operations}]},
        "events_packed": {"packs": [{"number": 1, "count": events}]},
        "taken": {"shards": shards},
    }
    return SimpleNamespace(batchId=batch, observedMetrics=observed)


def test_the_counts_of_a_batch_are_checked(tmp_path: Path) -> None:
    """Rows read are used, rejected or late; every violation raises with its numbers."""
    stream = purgatory_stream(tmp_path)
    good = Written(entered=7, outcomes=2, rejects=3, rejected_operations=2, rejected_events=1)
    taken = (3, 18), (4, 0)

    stream.written[3] = good
    assert stream.checked_counts(progress(3, 8, 19, *taken)) == (10, 20, 2)

    with pytest.raises(AiowheelError, match="8 operations left the first stage, 7 came to"):
        stream.checked_counts(progress(3, 8, 19, *taken, (1, 0)))
    with pytest.raises(AiowheelError, match="batch 3: 6 operations and 18 events were read, 25"):
        stream.checked_counts(progress(3, 6, 18, *taken))
    stream.written[3] = good._replace(rejected_events=0)
    with pytest.raises(AiowheelError, match="2 rows were rejected, 3 written to rejects"):
        stream.checked_counts(progress(3, 8, 19, *taken))


def test_the_counts_of_a_run_are_checked(tmp_path: Path) -> None:
    """Pending and new operations equal ended and pending ones, without an unfinished batch."""
    stream = purgatory_stream(tmp_path)
    (tmp_path / "ck" / "commits").mkdir(parents=True)
    for batch in (4, 5):
        (tmp_path / "ck" / "commits" / str(batch)).touch()
        stream.written[batch] = Written(entered=10, outcomes=6, rejects=0)
    stream.written[6] = Written(entered=100, outcomes=0, rejects=0)

    stream.check_total(before=1, after=9)

    with pytest.raises(
        AiowheelError, match="1 operations waited and 20 came, but 12 ended and 8 wait"
    ):
        stream.check_total(before=1, after=8)
