"""The summary picture of several benchmarks: its contents, and the command that draws it."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks._publish import publish_summary
from benchmarks._summary import panels_of

pytestmark = pytest.mark.one_build

MACHINE = {"python": "CPython 3.13.0", "build": "compiled", "cpu": "a CPU", "cores": 2}


def run_of(program: str, *tables: tuple[str, list[list[str]]]) -> dict[str, Any]:
    """Return the parts of a program's output that the picture needs."""
    return {
        "program": program,
        "machine": MACHINE | {"load": 0.1, "commit": "abc"},
        "tables": [
            {"title": title, "columns": ["", "ns", "least"], "rows": rows} for title, rows in tables
        ],
    }


def test_a_panel_is_the_first_figure_of_a_table() -> None:
    """Bars are named by row; a cell that is not a number has no bar."""
    rows = [["aiowheel", "1,250", "3"], ["asyncio", "-", "-"], ["uvloop", "90.5", "1"]]

    (panel,) = panels_of(run_of("wheel", ("churn", rows)))

    assert (panel.title, panel.figure) == ("wheel: churn", "ns")
    assert panel.bars == [("aiowheel", "1,250", 1_250.0), ("uvloop", "90.5", 90.5)]


def test_a_table_without_figures_has_no_panel() -> None:
    """A table that only holds a note is skipped."""
    assert list(panels_of(run_of("wheel", ("notes", [["a", "none"], ["b"]])))) == []


def test_all_programs_are_drawn_into_one_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The PNG is written next to the files, also for bars that are zero or far apart."""
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    Path("aiowheel-bench").mkdir()
    tables = [("near", [["aiowheel", "1"], ["asyncio", "2"]]), ("zero", [["aiowheel", "0"]])]
    tables += [("far", [["aiowheel", "1"], ["asyncio", "2,000"]])] * 2
    for name in ("wheel", "loop"):
        Path(f"aiowheel-bench/{name}.json").write_text(json.dumps(run_of(name, *tables)))

    publish_summary(["wheel", "loop"])

    assert capsys.readouterr().out == f"\nsummary: {Path('aiowheel-bench/summary.png')}\n"
    assert Path("aiowheel-bench/summary.png").read_bytes().startswith(b"\x89PNG")
