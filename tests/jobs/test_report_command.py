"""`aiowheel report`: its files, its output and its errors."""

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from aiowheel import DelayedOperation, ManualTimer, Purgatory
from aiowheel.cli import run
from aiowheel.trace import TraceRecorder


class Reply(DelayedOperation[None]):
    """Completes on the second call of `try_complete`."""

    asked = 0

    def try_complete(self) -> bool:
        """Count the calls."""
        self.asked += 1
        return self.asked > 2


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Record two operations that complete and one that times out."""
    folder = tmp_path / "trace"
    timer = ManualTimer()
    with TraceRecorder(folder, clock=timer.time) as recorder:
        purgatory = Purgatory("replies", timer=timer, instruments=[recorder])
        for key in ("<b>", "b", "c"):
            purgatory.try_complete_else_watch(Reply(timeout=0.5), [key])
        timer.advance(0.25)
        purgatory.check_and_complete("<b>")
        purgatory.check_and_complete("b")
        timer.advance(1.0)
    return folder


def damage(trace: Path) -> Path:
    """Overwrite the column `created` of a trace; its footer stays intact."""
    (file,) = trace.glob("*.parquet")
    chunk = pq.read_metadata(file).row_group(0).column(5)
    content = bytearray(file.read_bytes())
    for at in range(chunk.data_page_offset, chunk.data_page_offset + chunk.total_compressed_size):
        content[at] = 0xFF
    file.write_bytes(content)
    return file


@pytest.mark.spark
@pytest.mark.slow
def test_a_report_is_a_page_and_tables(
    one_session: None, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output is one JSON object, stderr is empty, and the page needs no network."""
    out = tmp_path / "report"

    assert run(["report", str(trace), "--out", str(out), "--json"]) == 0

    text, errors = capsys.readouterr()
    printed = json.loads(text)
    page = Path(printed["page"]).read_text(encoding="utf-8")
    assert errors == ""
    assert printed["operations"] == 3
    assert printed["tables"]["outcomes"][0]["expired"] == 1
    assert "33.33 %" in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert "http" not in page
    assert "<script" not in page
    assert not list(out.glob(".*"))


def test_a_folder_without_a_trace_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is one line with exit code 2, before Spark is started."""
    assert run(["report", str(tmp_path)]) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        f"aiowheel: no trace file (trace-*.parquet) in {str(tmp_path)!r}"
    ]


@pytest.mark.parametrize("command", ["report", "replay"])
def test_a_trace_without_permission_is_named(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The permission error is simulated, because root has access to all folders."""

    def refuse(path: str | os.PathLike[str]) -> None:
        raise PermissionError(13, "Permission denied", os.fspath(path))

    monkeypatch.setattr(os, "scandir", refuse)

    assert run([command, str(tmp_path)]) == 2

    assert capsys.readouterr().err == f"aiowheel: {tmp_path}: Permission denied\n"


def test_an_output_that_is_a_file_is_refused(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is not overwritten."""
    file = tmp_path / "taken"
    file.write_text("mine")

    assert run(["report", str(trace), "--out", str(file)]) == 2

    assert "--out must be a folder, got " in capsys.readouterr().err
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    "command", [["report", "{trace}"], ["tune", "{trace}"], ["simulate", "--fit", "{trace}"]]
)
@pytest.mark.parametrize("out", ["{trace}", "{trace}/report"])
def test_an_output_inside_the_trace_is_refused(
    command: list[str], out: str, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark and Arrow could no longer read the folder; no file is written."""
    before = sorted(trace.iterdir())
    words = [word.replace("{trace}", str(trace)) for word in [*command, "--out", out]]

    assert run(words) == 2

    assert "--out must be outside the tables that are read, got " in capsys.readouterr().err
    assert sorted(trace.iterdir()) == before


EARLIER = ("report.html", "outcomes.parquet", "notes.txt")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    "failure", ["full disk", pytest.param("damaged page", marks=pytest.mark.thorough)]
)
def test_a_failed_report_keeps_the_earlier_one(
    one_session: None,
    trace: Path,
    tmp_path: Path,
    failure: str,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The earlier report is unchanged, no hidden file remains, and the error is one line."""
    out, new = tmp_path / "report", tmp_path / "new"
    out.mkdir()
    for name in EARLIER:
        (out / name).write_text("earlier")
    if failure == "full disk":
        request.getfixturevalue("small_disk")
        code, reason = 1, f"{out}: File too large"
    else:
        file = damage(trace)
        code, reason = 2, f"{file}: cannot be read: "

    for folder in (out, new):
        assert run(["report", str(trace), "--out", str(folder)]) == code

    (line, _) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"aiowheel: {reason}")
    assert sorted(path.name for path in out.iterdir()) == sorted(EARLIER)
    assert {path.read_text() for path in out.iterdir()} == {"earlier"}
    assert not new.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report", "trace"]


@pytest.mark.spark
@pytest.mark.slow
def test_commands_on_a_damaged_page_write_nothing(
    one_session: None, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is one line with exit code 2 that names the file."""
    file = damage(trace)

    for command in ("tune", "simulate --fit"):
        out = ["--out", str(tmp_path / "out")]
        assert run([*command.split(), str(trace), *out]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"aiowheel: {file}: cannot be read: ")

    assert [path.name for path in tmp_path.iterdir()] == ["trace"]


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.slow
def test_a_full_disk_leaves_no_tuning_and_no_simulation(
    one_session: None,
    trace: Path,
    tmp_path: Path,
    small_disk: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The page is the last file; if it does not fit, the tables are removed too."""
    monkeypatch.setattr("aiowheel.jobs.report.html._STYLE", "x" * 10_000)
    out = ["--out", str(tmp_path / "out")]

    assert run(["tune", str(trace), "--tick", "0.001", "--wheel-size", "64", *out]) == 1
    assert run(["simulate", "--operations", "10", "--shards", "1", *out]) == 1

    assert capsys.readouterr().err == f"aiowheel: {tmp_path}/out: File too large\n" * 2
    assert [path.name for path in tmp_path.iterdir()] == ["trace"]


@pytest.mark.spark
@pytest.mark.slow
def test_a_report_without_a_picture_replaces_an_earlier_one(
    one_session: None,
    trace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without matplotlib an old picture is removed; other files in the folder stay.

    In the output, which is no terminal, no name is cut off to a width.
    """
    monkeypatch.setattr("aiowheel.jobs.report.job._draw", lambda *_: None)
    out = tmp_path / "report"
    out.mkdir()
    for name in ("report.png", "report.html", "notes.txt"):
        (out / name).write_text("earlier")

    assert run(["report", str(trace), "--out", str(out)]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert any("replies" in line and "Reply" in line for line in lines)
    assert any(line.split() == ["page", str(out / "report.html")] for line in lines)
    assert not (out / "report.png").exists()
    assert (out / "notes.txt").read_text() == "earlier"
    assert "replies" in (out / "report.html").read_text()
