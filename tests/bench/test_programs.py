"""The benchmark programs at sizes that only test that they run: structure, no times."""

import json
from pathlib import Path
from typing import Any

import pytest

from aiowheel._build import accelerated
from aiowheel.cli import run
from benchmarks import durable, loop, purgatory, purgatory_micro, timer, wheel
from benchmarks._loops import loops_here, other_loops
from benchmarks._named_figures import publish_figures

pytestmark = [pytest.mark.one_build, pytest.mark.slow]
BUILDS = ["aiowheel", "aiowheel pure"] if accelerated() else ["aiowheel"]


def test_the_wheel_is_measured_with_every_side() -> None:
    """Each size has all sides with all rounds, and all verdicts."""
    report = wheel.run(wheel.WheelPlan(sizes=(10, 20), operations=100, rounds=2, remembered=100))

    churned = report.series["churn, 20 pending"]
    assert [each.side.name for each in churned] == [*BUILDS, "HeapWheel", *loops_here()]
    assert all(len(each.rounds) == 2 for each in churned)
    assert len(report.verdicts) == 4 + len(loops_here())


@pytest.mark.parametrize(
    "line",
    [
        "churn",
        *(
            pytest.param(line, marks=pytest.mark.thorough)
            for line in ("crowd", "timeout", "wait_for", "memory", "stall", "fire")
        ),
    ],
)
def test_a_line_of_the_timer_is_measured_on_every_loop(line: str) -> None:
    """Each build of aiowheel's timer and the loop's own timers are measured on each loop."""
    plan = timer.TimerPlan(sizes=(10, 5_000), operations=100, rounds=1, only=line)

    report = timer.run(plan)

    assert report.tables
    for table in report.tables:
        names = [row[0] for row in table.rows]
        assert names == [
            *(f"{who}, {on}" for on in loops_here() for who in (*BUILDS, "own")),
            *(f"{who}, {on}" for on in other_loops() for who in ("aiowheel", "own")),
        ]
        assert {len(row) for row in table.rows} == {len(table.columns)}


@pytest.mark.parametrize(
    ("line", "verdicts"),
    [
        ("timeout", 1),
        pytest.param("churn", 8, marks=pytest.mark.thorough),
        pytest.param("stall", 2, marks=pytest.mark.thorough),
    ],
)
def test_a_line_of_the_loop_is_measured_beside_its_base(line: str, verdicts: int) -> None:
    """Each wheel loop is measured with its base loop, and has its verdicts."""
    if "uvloop" not in loops_here():
        pytest.skip("uvloop is not installed")

    report = loop.run(loop.LoopPlan(sizes=(10, 5_000), operations=100, rounds=1, only=line))

    for measured in report.series.values():
        sides = [(each.side.name, each.side.loop) for each in measured]
        assert sides == [
            (f"{who}, {on}", on if who == "own" else f"wheel on {on}")
            for on in loops_here()
            for who in (*BUILDS, "own")
        ] + [(f"own, {on}", on) for on in other_loops()]
    assert len(report.verdicts) == verdicts


@pytest.mark.thorough
def test_lateness_counts_every_firing() -> None:
    """No firing of aiowheel is early, and the report has a verdict for each loop."""
    plan = timer.TimerPlan(firings=500, slice_seconds=0.1, rounds=1, only="lateness")

    report = timer.run(plan)

    early = [each for each in report.verdicts if each.what.startswith("earliest")]
    assert len(early) == len(loops_here())
    assert all(each.passed for each in early)


@pytest.mark.thorough
def test_bursts_and_idling_run() -> None:
    """The two lines that depend on the real clock run."""
    for line in ("burst", "idle"):
        plan = timer.TimerPlan(sizes=(1, 2), slice_seconds=0.05, rounds=1, burst=100, only=line)

        assert timer.run(plan).verdicts


@pytest.mark.thorough
def test_every_design_takes_the_same_load(results: Path) -> None:
    """All contenders accept all requests; about half of them should expire."""
    plan = purgatory.LoadPlan(requests=1_000, rates=(5_000,), cases=("high",), rounds=1)

    report = purgatory.run(plan)

    (measured,) = report.series.values()
    assert len(measured) == len(purgatory.DESIGNS) - (not accelerated())
    for side in measured:
        assert side.median("parked") == 1_000
        assert side.median("expected_percent") == measured[0].median("expected_percent")
        if side.side.name == "generator alone":
            assert side.median("expired_percent") == 0
        else:
            assert 0 < side.median("expired_percent") < 100
            assert 45 < side.median("expected_percent") < 55


@pytest.mark.thorough
def test_a_purgatory_is_measured_call_by_call() -> None:
    """All payloads are freed at once, without the collector."""
    plan = purgatory_micro.MicroPlan(
        sizes=(50, 150), operations=200, rounds=1, remembered=20_000, payloads=20
    )

    report = purgatory_micro.run(plan)

    (held,) = (each for each in report.series["payloads"] if each.side.name == "aiowheel")
    assert held.rounds == [{"held": 20, "completed": 20, "left": 0}]
    assert {table.title.partition(":")[0] for table in report.tables} >= {"50 pending"}


def test_the_command_writes_numbers_and_charts(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The JSON file has machine, arguments and every round; three pictures are written."""
    pytest.importorskip("matplotlib")
    arguments = ["bench", "purgatory", "--requests", "200", "--rate", "2000", "--case", "low"]

    code = run([*arguments, "--side", "aiowheel", "--side", "hashed wheel", "--rounds", "2"])

    assert code == 0
    assert "2,000 per second" in capsys.readouterr().out
    content: dict[str, Any] = json.loads(
        (results / "aiowheel-bench" / "purgatory.json").read_bytes()
    )
    assert content["arguments"]["sides"] == ["aiowheel", "hashed wheel"]
    assert {"python", "cpu", "build", "commit"} <= set(content["machine"])
    (sides,) = content["rounds"].values()
    assert [len(side["rounds"]) for side in sides] == [2, 2]
    charts = sorted(path.name for path in results.glob("aiowheel-bench/*.png"))
    assert charts == [f"purgatory-{name}.png" for name in ("cpu", "gc", "throughput")]


def test_an_unknown_line_lists_the_legal_names(capsys: pytest.CaptureFixture[str]) -> None:
    """The command exits with 2 and lists the legal names."""
    code = run(["bench", "timer", "--only", "nope"])

    assert code == 2
    assert "--only must be one of churn, crowd, timeout" in capsys.readouterr().err


def test_durable_timers_need_a_pending_timer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of a timer are those of the store, divided by their number."""
    plans: list[object] = []
    monkeypatch.setattr(durable, "run", plans.append)

    assert run(["bench", "durable", "--quick", "--pending", "0"]) == 2
    assert plans == []
    assert "'--pending': Input should be greater than or equal to 1" in capsys.readouterr().err


def test_named_figures_are_printed_and_written(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Machine and load come with the measured figures; a mapping is a section."""
    publish_figures(lambda: {"rows": 7, "part": {"seconds": 0.5}}, results / "figures.json")

    written = json.loads((results / "figures.json").read_bytes())
    assert list(written) == ["python", "cores", "load_before", "rows", "part", "load_after"]
    assert written["part"] == {"seconds": 0.5}
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[3:6] == [["rows", "7"], ["part"], ["seconds", "0.5"]]
