"""The picture of many benchmarks: what it shows, and that the command draws it."""

import json
from pathlib import Path
from typing import Any

import pytest

from aiowheel.bench._summary import panels_of
from aiowheel.cli._bench_file import publish_summary

pytestmark = pytest.mark.one_build

MACHINE = {"python": "CPython 3.13.0", "build": "compiled", "cpu": "a CPU", "cores": 2}


def run_of(program: str, *tables: tuple[str, list[list[str]]]) -> dict[str, Any]:
    """What a program writes, as far as the picture needs it."""
    return {
        "program": program,
        "machine": MACHINE | {"load": 0.1, "commit": "abc"},
        "tables": [
            {"title": title, "columns": ["", "ns", "least"], "rows": rows} for title, rows in tables
        ],
    }


def test_a_panel_is_the_first_figure_of_a_table() -> None:
    """By the row's name; a cell that is no number has no bar."""
    rows = [["aiowheel", "1,250", "3"], ["asyncio", "-", "-"], ["uvloop", "90.5", "1"]]

    (panel,) = panels_of(run_of("wheel", ("churn", rows)))

    assert (panel.title, panel.figure) == ("wheel: churn", "ns")
    assert panel.bars == [("aiowheel", "1,250", 1_250.0), ("uvloop", "90.5", 90.5)]


def test_a_table_without_figures_has_no_panel() -> None:
    """Notes in the form of a table do not count."""
    assert list(panels_of(run_of("wheel", ("notes", [["a", "none"], ["b"]])))) == []


def test_all_programs_are_drawn_into_one_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A PNG beside their files, also where bars are zero or far apart."""
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
