"""The commands `aiowheel purgatory`, `pending` and `flush`."""

import json
import os
import secrets
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from aiowheel.cli import run
from aiowheel.cli._job_output import print_result
from aiowheel.cli._purgatory_stream import _formats
from aiowheel.errors import BadInputError
from aiowheel.jobs.operations.shard import Shard
from aiowheel.jobs.schemas import Flaw
from aiowheel.jobs.spark.checkpoint import Checkpoint
from aiowheel.readers import Format

from .conftest import assert_nothing_lost

YEAR_2190_MS = 6_942_672_000_000

OPERATIONS: list[dict[str, Any]] = [
    {"id": "both", "keys": ["a", "b"], "thresholds": [5, None], "mode": "all"}
    | {"created": 1_000, "deadline": 3_000},
    {"id": "late", "keys": ["a"], "thresholds": [9], "created": 1_000, "deadline": 1_505},
    {"id": "ever", "keys": ["c"], "created": 1_000},
    {"id": "none", "keys": [], "created": 1_000},
]
EVENTS: list[dict[str, Any]] = [
    {"key": "a", "time": 1_400, "value": 3},
    {"key": "a", "time": 1_600, "value": 7},
    {"key": "b", "time": 1_700},
    {"time": 1},
]
SAME_ID: list[dict[str, Any]] = [{}, {"deadline": 2_000}, {"mode": "any"}]
OUTCOMES = {("both", "completed", "b", 1_700), ("late", "expired", None, 1_510)}


@pytest.fixture
def trace(tmp_path: Path) -> list[str]:
    """Return the arguments for two folders with one file each."""
    write(tmp_path / "ops" / "0.ndjson", OPERATIONS)
    write(tmp_path / "events" / "0.ndjson", EVENTS)
    return ["purgatory", str(tmp_path / "ops"), str(tmp_path / "events"), "--tick", "10"]


def write(file: Path, rows: list[dict[str, Any]]) -> None:
    """Write a file of rows that appears complete."""
    file.parent.mkdir(exist_ok=True)
    hidden = file.with_name(f".{file.name}")
    hidden.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    hidden.rename(file)


def rows_in(folder: Path) -> list[tuple[Any, ...]]:
    """Return every row of the Parquet files at any depth."""
    tables = [pq.ParquetFile(file).read() for file in sorted(folder.glob("**/*.parquet"))]
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def run_successfully(
    arguments: list[str], out: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[dict[str, Any], str]:
    """Run a successful command; return its JSON and its stderr."""
    code = run([*arguments, "--out", str(out), "--json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    report = json.loads(printed.out)
    if "engine" in report:
        assert_nothing_lost(report, out, lines_of(arguments))
    return report, printed.err


def lines_of(arguments: list[str]) -> int:
    """Count the rows in the two folders of a command."""
    files = [file for folder in arguments[1:3] for file in Path(folder).glob("[0-9]*")]
    return sum(len(file.read_text().splitlines()) for file in files)


def test_a_trace_is_replayed(
    trace: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Outcomes and rejects are written, the report has the counts, and a second run replaces."""
    run_successfully(trace, tmp_path / "out", capsys)
    report, errors = run_successfully(trace, tmp_path / "out", capsys)

    assert {name: report[name] for name in ("engine", "unit", "tick", "operations", "events")} == {
        "engine": "wheel",
        "unit": "ms",
        "tick": 10,
        "operations": 3,
        "events": 3,
    }
    counts = [report[name] for name in ("completed", "expired", "pending", "rejected")]
    assert counts == [1, 1, 1, 2]
    assert set(rows_in(tmp_path / "out" / "outcomes")) == OUTCOMES
    reasons = [reason for _, reason, _ in rows_in(tmp_path / "out" / "rejects")]
    assert reasons == [Flaw.KEYS.value, Flaw.KEY.value]
    assert errors == f"aiowheel: 2 rows rejected: see {tmp_path / 'out' / 'rejects'}\n"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("one_session")
def test_both_engines_report_the_same(
    trace: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reports differ only in the engine's name, the place and the time taken."""
    wheel, _ = run_successfully(trace, tmp_path / "wheel", capsys)
    spark, _ = run_successfully([*trace, "--engine", "spark"], tmp_path / "spark", capsys)

    different = {name for name, value in wheel.items() if spark[name] != value}
    assert different <= {"engine", "out", "seconds"}
    assert set(rows_in(tmp_path / "spark" / "outcomes")) == OUTCOMES


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("one_session")
def test_a_stream_stops_continues_and_is_flushed(
    trace: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pending operations are listed in between; late and far-ahead rows are counted."""
    out = tmp_path / "out"
    stream = [*trace, "--stream", "--shards", "2", "--files-per-batch", "1"]
    checkpoint = ["--checkpoint", str(out / "checkpoint")]

    once, _ = run_successfully([*stream, "--once"], out, capsys)
    assert (once["ended"], once["late"], once["rejected"]) == ("once", 0, 2)

    assert run(["pending", *checkpoint, "--json"]) == 0
    pending = json.loads(capsys.readouterr().out)
    assert {row["id"]: row["keys"] for row in pending["operations"]} == {
        # The watermark of the operations is at their newest time, 1000.
        "both": ["a", "b"],
        "late": ["a"],
        "ever": ["c"],
    }

    assert run(["pending", *checkpoint, "--limit", "1", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["pending"], len(first["operations"])) == (3, 1)
    assert first["operations"][0] == min(
        pending["operations"], key=lambda row: (row["created"], row["id"])
    )

    write(tmp_path / "events" / "1.ndjson", [{"key": "c", "time": YEAR_2190_MS}])
    write(tmp_path / "ops" / "1.ndjson", [{"id": "old", "keys": ["a"], "created": 5}])
    assert run(["flush", *checkpoint]) == 0
    capsys.readouterr()
    ended, errors = run_successfully(stream, out, capsys)

    assert (ended["ended"], ended["late"], ended["rejected"]) == ("drained", 1, 1)
    (batch,) = map(json.loads, errors.splitlines())
    assert (batch["rows"], batch["rejected"], batch["late"]) == (2, 1, 1)
    assert ended["fixed_seconds"] > 0
    assert set(rows_in(out / "outcomes")) == OUTCOMES
    rejects = {(reason, raw) for _, reason, raw in rows_in(out / "rejects")}
    assert (Flaw.AHEAD.value, json.dumps({"key": "c", "time": YEAR_2190_MS})) in rejects

    assert run([*stream, "--out", str(out)]) == 2
    assert "this stream has been flushed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--once"], "--once is for --stream"),
        (["--max-lateness", "3"], "--max-lateness is for --stream"),
        (["--max-ahead", "3"], "--max-ahead is for --stream"),
        (["--records-per-batch", "3"], "--records-per-batch is for --stream"),
        (["--master", "local[2]"], "--master is for --engine spark"),
        (["--stream", "--once", "--drain"], "--once and --drain exclude each other"),
        (["--stream", "--max-lateness", "1e9"], "must be at most 31536000 s, got 1000000000.0"),
        (
            ["--tick", "4000000000000"],
            "'--tick': Input should be less than or equal to 3600000000000",
        ),
        (
            ["--stream", "--shards", "100001"],
            "'--shards': Input should be less than or equal to 100000",
        ),
        (
            ["--stream", "--files-per-batch", "2147483648"],
            "'--files-per-batch': Input should be less than or equal to 2147483647",
        ),
        (["--format", "clf"], "'clf' is not one of 'parquet', 'ndjson', 'csv'"),
        (["--stream", "--out", "{events}/out"], "--out must be outside the watched folder, got"),
        (
            ["--stream", "--checkpoint", "{events}"],
            "--checkpoint must be outside the watched folder, got",
        ),
        (["--stream", "--checkpoint", "{file}"], "--checkpoint must be a folder, got"),
        (["--out", "{file}"], "out.txt is a file"),
        (["--out", "{file}/out"], "out.txt is a file"),
        (["--out", "{events}/out"], "--out must be outside the tables that are read, got"),
        (["--out", "{events}"], "--out must be outside the tables that are read, got"),
    ],
)
def test_options_that_cannot_be_used_are_refused(
    options: list[str],
    reason: str,
    trace: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The error is one line with exit code 2, before any work starts."""
    (tmp_path / "out.txt").write_text("")
    places = {"events": tmp_path / "events", "file": tmp_path / "out.txt"}
    given = [option.format(**places) for option in options]
    out = [] if "--out" in given else ["--out", str(tmp_path / "out")]

    assert run([*trace, *out, *given]) == 2

    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1
    assert reason in errors[0]
    assert not (tmp_path / "out").exists()


@pytest.mark.posix
def test_spark_refuses_a_pipe(
    trace: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark would take it for an empty file."""
    trace[2] = str(tmp_path / "pipe.ndjson")
    os.mkfifo(trace[2])

    code = run([*trace, "--engine", "spark", "--out", str(tmp_path / "out")])

    assert code == 2
    errors = capsys.readouterr().err
    assert f"{trace[2]}: is a pipe, a socket or a device" in errors
    assert "use --engine wheel, or write the rows to a file first" in errors
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("table", ["ops", "events"])
def test_a_table_of_bad_rows_is_bad_input(
    table: str, trace: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and the result of an earlier run stays, as for `aiowheel idle`."""
    refused_without_good_rows([*trace, "--engine", "wheel"], table, tmp_path, capsys)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("one_session")
@pytest.mark.parametrize("table", ["ops", pytest.param("events", marks=pytest.mark.thorough)])
def test_spark_refuses_a_table_of_bad_rows(
    table: str, trace: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The Spark engine has the same error text."""
    refused_without_good_rows([*trace, "--engine", "spark"], table, tmp_path, capsys)


def refused_without_good_rows(
    arguments: list[str], table: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spoil a table, run, and check that the earlier result is unchanged."""
    (folder / table / "0.ndjson").write_text('{"keys": ["a"]}\n{"id": "b"}\n')
    earlier = folder / "out" / "outcomes" / "part-0.parquet"
    earlier.parent.mkdir(parents=True)
    earlier.write_bytes(b"earlier")

    assert run([*arguments, "--out", str(folder / "out")]) == 2

    assert f"{folder / table}: no good row (2 rejected, the last: " in capsys.readouterr().err
    assert [file for file in folder.glob("out/**/*") if file.is_file()] == [earlier]
    assert earlier.read_bytes() == b"earlier"


def test_tables_without_rows_are_legal(
    trace: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without events, all operations with a deadline expire."""
    (tmp_path / "events" / "0.ndjson").write_text("")

    report, _ = run_successfully(trace, tmp_path / "out", capsys)

    assert (report["operations"], report["events"], report["expired"]) == (3, 0, 2)


@pytest.mark.parametrize("engine", ["wheel", pytest.param("spark", marks=pytest.mark.spark)])
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_lost_row_fails_the_run(
    engine: str,
    trace: list[str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The error has the numbers, and the result of an earlier run stays."""
    out = tmp_path / "out"
    run_successfully(trace, out, capsys)
    earlier = {file: file.read_bytes() for file in out.glob("**/*.parquet")}
    if engine == "spark":
        request.getfixturevalue("one_session")
        batch = import_module("aiowheel.jobs.operations.batch")
        all_endings = batch.endings

        def endings(*args: Any, **more: Any) -> Any:
            return all_endings(*args, **more).where("id != 'both'")

        monkeypatch.setattr(batch, "endings", endings)
    else:
        monkeypatch.setattr(Shard, "settle", lambda *_: [])
        monkeypatch.setattr(Shard, "__len__", lambda _: 1)

    assert run([*trace, "--engine", engine, "--out", str(out)]) == 1

    counts = "3 read, but 1 outcomes and 1 pending" if engine == "spark" else "3 read, but 0"
    assert f"operations are lost or doubled: {counts}" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in out.glob("**/*.parquet")} == earlier


@pytest.mark.parametrize("table", ["outcomes", "rejects"])
def test_the_files_of_others_are_not_replaced(
    table: str, trace: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table would replace its folder with everything in it."""
    folder = tmp_path / "out" / table
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")

    assert run([*trace, "--out", str(tmp_path / "out")]) == 2

    flaw = "would be replaced, but holds notes.txt, which is no file of a result"
    assert capsys.readouterr().err == f"aiowheel: {folder}: {flaw}: choose another folder\n"
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == [
        folder / "notes.txt"
    ]


def test_the_batches_of_a_stream_are_not_replaced(
    trace: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The stream would not write them again."""
    batch = tmp_path / "out" / "outcomes" / "batch_id=000000"
    batch.mkdir(parents=True)
    (batch / "part-0.parquet").write_bytes(b"rows")

    assert run([*trace, "--out", str(tmp_path / "out")]) == 2

    flaw = "holds the batches of a stream, which would be deleted: choose another folder"
    assert capsys.readouterr().err == f"aiowheel: {batch.parent}: {flaw}\n"
    assert (batch / "part-0.parquet").exists()


@pytest.mark.parametrize(
    ("engine", "change"),
    [
        *(("wheel", change) for change in SAME_ID),
        pytest.param("spark", SAME_ID[0], marks=pytest.mark.spark),
        *(
            pytest.param("spark", change, marks=[pytest.mark.spark, pytest.mark.thorough])
            for change in SAME_ID[1:]
        ),
    ],
)
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_two_operations_with_one_id_are_refused(
    engine: str,
    change: dict[str, Any],
    trace: list[str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Their outcomes, which may differ, would have the same id."""
    if engine == "spark":
        request.getfixturevalue("one_session")
    write(tmp_path / "ops" / "1.ndjson", [OPERATIONS[0] | change])

    assert run([*trace, "--engine", engine, "--out", str(tmp_path / "out")]) == 2

    flaw = "id must be unique, but 2 operations have 'both'"
    assert capsys.readouterr().err == f"aiowheel: {tmp_path / 'ops'}: {flaw}\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("one_session")
@pytest.mark.parametrize("table", ["outcomes", pytest.param("rejects", marks=pytest.mark.thorough)])
def test_executors_with_separate_disks_fail_the_run(
    table: str,
    trace: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The driver finds no file of the executors, and writes no result."""
    from pyspark.sql import DataFrameWriter

    write_parts = DataFrameWriter.parquet

    def write_elsewhere(writer: DataFrameWriter, path: str) -> None:
        write_parts(writer, path)
        for part in Path(path.removeprefix("file:")).glob("part-*"):
            if table in path:
                part.unlink()

    monkeypatch.setattr(DataFrameWriter, "parquet", write_elsewhere)

    assert run([*trace, "--engine", "spark", "--out", str(tmp_path / "out")]) == 1

    (line,) = capsys.readouterr().err.splitlines()
    assert f"{table}: 2 rows were written, 0 can be read back" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["purgatory", "gone", "events", "--out", "out"], "gone: no such file"),
        (["purgatory", "gone", "events", "--out", "out", "--stream"], "gone: no such folder"),
        (["purgatory", "ops", "ops", "--out", "out", "--stream"], "must be two tables"),
        (["flush", "--checkpoint", "gone"], "gone: no checkpoint of a stream"),
    ],
)
@pytest.mark.usefixtures("trace")
def test_missing_places_are_named(
    arguments: list[str],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The error is one line with exit code 2."""
    monkeypatch.chdir(tmp_path)

    assert run(arguments) == 2

    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("files", "stored", "given", "formats"),
    [
        ([], None, None, None),
        ([], None, "csv", ["csv", "csv"]),
        (["ops/a/1.ndjson"], None, None, ["ndjson", "ndjson"]),
        (["ops/1.csv", "events/1.parquet"], None, None, ["csv", "parquet"]),
        ([], ["ndjson", "csv"], None, ["ndjson", "csv"]),
        (["events/1.parquet"], ["ndjson", "csv"], None, ["ndjson", "csv"]),
    ],
)
def test_a_stream_keeps_its_formats(
    files: list[str],
    stored: list[str] | None,
    given: str | None,
    formats: list[str] | None,
    tmp_path: Path,
) -> None:
    """A folder is empty before the first files, and if a stream deletes what it has read."""
    places = [tmp_path / "ops", tmp_path / "events"]
    for folder in (*places, tmp_path / "ops" / "a", tmp_path / "checkpoint"):
        folder.mkdir()
    for file in files:
        (tmp_path / file).write_text("")
    if stored is not None:
        settings = dict(zip(("operations_format", "events_format"), stored, strict=True))
        (tmp_path / "checkpoint" / "aiowheel.json").write_text(json.dumps(settings))
    options: Any = SimpleNamespace(format=given and Format(given), operations="ops")
    checkpoint = Checkpoint(tmp_path / "checkpoint")

    if formats is None:
        with pytest.raises(BadInputError, match="ops: holds no file yet: give --format"):
            _formats(options, places, checkpoint)
    else:
        assert _formats(options, places, checkpoint) == formats


def test_an_empty_list_of_pending_operations_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No operation is pending in a stream that has not started or has ended."""
    pytest.importorskip("pyspark")
    monkeypatch.setattr("aiowheel.cli.pending.job_session", lambda *_, **__: nullcontext())
    monkeypatch.setattr("aiowheel.jobs.operations.pending.pending_operations", lambda *_: [])
    (tmp_path / "aiowheel.json").write_text('{"job": "purgatory"}')

    assert run(["pending", "--checkpoint", str(tmp_path)]) == 0

    assert capsys.readouterr().out == "0 operations wait\n"


def test_a_missing_measurement_has_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Without an empty micro-batch the report has no line for its cost; JSON has null."""
    result = {"rows": 4, "fixed_seconds": None}

    print_result(result, as_json=False)
    assert capsys.readouterr().out.split() == ["rows", "4"]

    print_result(result, as_json=True)
    assert json.loads(capsys.readouterr().out) == result


@pytest.mark.parametrize("command", ["purgatory", "pending", "flush"])
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The help of each command has an example."""
    assert run([command, "--help"]) == 0

    assert f"aiowheel {command} " in capsys.readouterr().out.split("Example:")[1]


@pytest.mark.parametrize("earlier", [True, False])
def test_a_full_disk_leaves_the_earlier_result(
    trace: list[str],
    tmp_path: Path,
    small_disk: None,
    capsys: pytest.CaptureFixture[str],
    *,
    earlier: bool,
) -> None:
    """If the outcomes do not fit on the disk, no rejects are written either."""
    out = tmp_path / "found"
    if earlier:
        (out / "outcomes").mkdir(parents=True)
        (out / "outcomes" / "part-0.parquet").write_bytes(b"earlier")
    for number in range(1, 6):
        ids = [secrets.token_hex(99) for _ in range(30)]
        many = [{"id": each, "keys": ["a"], "created": 1, "deadline": 2} for each in ids]
        write(tmp_path / "ops" / f"{number}.ndjson", many)

    assert run([*trace, "--out", str(out)]) == 1

    assert capsys.readouterr().err == f"aiowheel: {out}: File too large\n"
    assert out.exists() == earlier
    left = [path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()]
    assert left == (["outcomes/part-0.parquet"] if earlier else [])


def test_long_ids_and_keys_are_cut(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A column is as wide as its longest cell; the JSON has the whole texts."""
    pytest.importorskip("pyspark")
    from aiowheel.jobs.operations.pending import Pending

    rows = [Pending("i" * 90, ("k" * 90, "c"), 2, 1, None), Pending("b", ("c",), 1, 2, 9)]
    Checkpoint(tmp_path).open({"job": "purgatory"})
    monkeypatch.setattr("aiowheel.cli.pending.job_session", lambda *_, **_more: nullcontext())
    monkeypatch.setattr("aiowheel.jobs.operations.pending.pending_operations", lambda *_: rows)

    assert run(["pending", "--checkpoint", str(tmp_path)]) == 0
    shown = capsys.readouterr().out.splitlines()[1].split()
    assert run(["pending", "--checkpoint", str(tmp_path), "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)["operations"][0]

    assert shown == ["i" * 77 + "...", "k" * 77 + "...,", "c", "2", "1", "never"]
    assert (whole["id"], whole["keys"]) == ("i" * 90, ["k" * 90, "c"])
