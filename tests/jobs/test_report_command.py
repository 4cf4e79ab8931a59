"""`aiowheel report`: what it writes, prints and refuses."""

import json
from pathlib import Path

import pytest

from aiowheel import DelayedOperation, ManualTimer, Purgatory
from aiowheel.cli import run
from aiowheel.trace import TraceRecorder


class Reply(DelayedOperation[None]):
    """Completes when asked the second time."""

    asked = 0

    def try_complete(self) -> bool:
        """Count."""
        self.asked += 1
        return self.asked > 2


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two operations that completed and one that timed out."""
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


@pytest.mark.spark
@pytest.mark.slow
def test_a_report_is_a_page_and_tables(
    one_session: None, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One JSON object on stdout, nothing on stderr, one page that asks nobody for anything."""
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


@pytest.mark.spark
@pytest.mark.slow
def test_a_pipe_gets_whole_names(
    one_session: None, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is cut to the width of a terminal that is not there."""
    assert run(["report", str(trace), "--out", str(tmp_path / "report")]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert any("replies" in line and "Reply" in line for line in lines)
    assert any(line.startswith("page") and line.endswith("report.html") for line in lines)


def test_what_is_no_trace_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and one line that names the folder, before Spark is started."""
    assert run(["report", str(tmp_path)]) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        f"aiowheel: no trace file (trace-*.parquet) in {str(tmp_path)!r}"
    ]


def test_an_output_that_is_a_file_is_refused(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is overwritten."""
    file = tmp_path / "taken"
    file.write_text("mine")

    assert run(["report", str(trace), "--out", str(file)]) == 2

    assert "is a file, --out wants a folder" in capsys.readouterr().err
    assert file.read_text() == "mine"
