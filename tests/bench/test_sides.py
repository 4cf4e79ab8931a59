"""Event loops that are measured in addition to asyncio's and uvloop's."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from aiowheel.cli import run
from aiowheel.errors import BadInputError
from benchmarks import _loops, loop, timer
from benchmarks._compare import MOST_CANCELLED, Line, own_side
from benchmarks._loops import checked_side, loop_factory, other_loops
from benchmarks._side import Side, Worker

pytestmark = pytest.mark.one_build

LINE = Line("churn", "", "timers:churn", {"pending": 1, "operations": 1_000_000}, {})


def test_a_side_is_a_factory_of_event_loops() -> None:
    """The spec is returned as it was given, and names the loop from then on."""
    assert checked_side("asyncio:SelectorEventLoop") == "asyncio:SelectorEventLoop"

    made = loop_factory("asyncio:SelectorEventLoop")()
    made.close()
    assert type(made) is asyncio.SelectorEventLoop


def test_a_side_may_be_a_module_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module is imported as by `python -m`, also in the measuring processes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (tmp_path / "loop_of_mine.py").write_text("from asyncio import new_event_loop as make\n")

    assert checked_side("loop_of_mine:make") == "loop_of_mine:make"


@pytest.mark.slow
def test_a_side_runs_this_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package `benchmarks` of the current folder or of `PYTHONPATH` belongs to other projects."""
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks/__init__.py").write_text("raise SystemExit('another project')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    side = Side("one", "passive:churn", {"kind": "heap", "pending": 5, "operations": 5})
    with Worker(side) as worker:
        assert worker.ask().keys() == {"pair", "pair_empty", "replace", "replace_empty"}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("asyncio", "a name on both sides of one colon"),
        (":new_event_loop", "a name on both sides of one colon"),
        ("asyncio:", "a name on both sides of one colon"),
        ("no_such_module:make", "No module named 'no_such_module'"),
        ("asyncio:no_such_factory", "no attribute 'no_such_factory'"),
        ("builtins:dict", "must return an event loop, not dict"),
        ("os:getcwdb", "must return an event loop, not bytes"),
        ("asyncio:get_running_loop", "no running event loop"),
        ("asyncio:run", "missing 1 required positional argument"),
    ],
)
def test_a_bad_side_is_refused_with_its_reason(spec: str, reason: str) -> None:
    """The error has the required form, the value, and the reason."""
    with pytest.raises(BadInputError, match=reason) as refused:
        checked_side(spec)

    assert str(refused.value).startswith(f"--side must be module:factory, got {spec!r} (")


@pytest.mark.parametrize("command", ["timer", "loop"])
def test_the_command_refuses_a_bad_side_in_one_line(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command exits with 2 without a traceback, and measures nothing."""
    assert run(["bench", command, "--quick", "--side", "nowhere:make"]) == 2

    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert "--side must be module:factory, got 'nowhere:make'" in said.err


def test_a_loop_that_keeps_cancelled_timers_does_fewer_operations() -> None:
    """A million operations in a round would fill the memory; the figures are per operation."""
    operations = {on: own_side(LINE, on).arguments["operations"] for on in ("uvloop", "rloop")}

    assert operations == {"uvloop": 1_000_000, "rloop": MOST_CANCELLED}


def test_zuvloop_is_measured_from_python_3_14_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only zuvloop needs Python 3.14; rloop does not."""

    def found(_: str) -> object:
        return object()

    def missing(_: str) -> None:
        return None

    monkeypatch.setattr(_loops, "find_spec", found)

    monkeypatch.setattr(sys, "version_info", (3, 13, 9))
    assert other_loops() == ["rloop"]
    monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    assert other_loops() == ["rloop", "zuvloop"]
    monkeypatch.setattr(_loops, "find_spec", missing)
    assert other_loops() == []


@pytest.mark.thorough
def test_an_additional_side_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both timers are measured, aiowheel's and the loop's own; there is no wheel loop above it."""
    side = "asyncio:SelectorEventLoop"
    monkeypatch.setattr("benchmarks._compare.other_loops", list)

    timers = timer.run(timer.TimerPlan((5,), 100, rounds=1, only="timeout", sides=(side,)))
    loops = loop.run(loop.LoopPlan((5,), 100, rounds=1, only="timeout", sides=(side,)))

    (of_timer, *_), (of_loop, *_) = timers.series.values(), loops.series.values()
    assert {each.side.name for each in of_timer} >= {f"aiowheel, {side}", f"own, {side}"}
    assert [each.side.name for each in of_loop if each.side.loop == side] == [f"own, {side}"]
