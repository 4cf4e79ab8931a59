"""`aiowheel bench durable` in its quick size."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest

from aiowheel.cli import run
from benchmarks import durable
from benchmarks._postgres import PostgresMissingError, postgres_server
from benchmarks._report import Report
from benchmarks._rounds import Series
from benchmarks._side import Side
from benchmarks.workloads import durable_peers

pytestmark = [pytest.mark.one_build, pytest.mark.realtime, pytest.mark.thorough]


def test_the_quick_size_measures_every_side(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report has all figures; on a busy machine no verdict is expected."""
    small = durable.DurablePlan(pending=100, operations=100, overdue=100, rounds=1)
    monkeypatch.setattr(durable, "QUICK", small)

    assert run(["bench", "durable", "--quick", "--json", "--out", "-"]) in {0, 1}
    content = json.loads(capsys.readouterr().out)
    sides = {series["side"]["name"]: series["rounds"][0] for series in content["rounds"]["durable"]}

    assert {"wheel alone", "SQLite", "SQLite raw"} <= sides.keys()
    assert sides["SQLite"]["schedule_100"] > 0
    assert sides["SQLite"]["fires"] > 0
    assert sides["SQLite"]["late_slow_p99_ms"] > 0
    assert sides["SQLite"]["page_ms"] > 0
    assert sides["SQLite"]["start_ms"] > 0
    assert all(sides[name]["bytes"] > 0 for name in ("SQLite", "PostgreSQL") if name in sides)
    assert sides["SQLite raw"]["commits_of_1000"] > 0
    assert content["verdicts"]


@pytest.mark.parametrize(("peer", "database"), [("pgqueuer", "postgres"), ("apscheduler", "")])
async def test_other_schedulers_do_the_same_work(peer: str, database: str) -> None:
    """One round of each scheduler has every figure."""
    pytest.importorskip(peer, reason=f"{peer} is not installed: see the group `bench-peers`")
    try:
        with postgres_server(fsync=True) if database else nullcontext("") as address:
            rounds = durable_peers.peer(peer, address, pending=10, operations=40, overdue=20)
            figures = await anext(rounds)
            await rounds.aclose()
    except PostgresMissingError as missing:
        pytest.skip(str(missing))

    assert figures["schedule_100"] > 0
    assert figures["late_slow_p99_ms"] > 0
    assert figures["fires"] > 0
    assert ("bulk" in figures) == (peer == "pgqueuer")


@pytest.mark.parametrize(
    ("rate", "bulk", "late", "verdicts"), [(10, 2, 0.2, "++++"), (9, 1, 0.3, "----")]
)
def test_figures_are_judged_against_pgqueuer(
    rate: float, bulk: float, late: float, verdicts: str
) -> None:
    """Each bound passes and fails as expected."""

    def series(**figures: float) -> Series:
        return Series(Side("side", "module:function"), [figures])

    measured = {
        "SQLite": series(schedule_100=rate, bulk=bulk, fires=rate, late_slow_p99_ms=late),
        durable.PGQUEUER: series(schedule_100=1, bulk=1, fires=1, late_slow_p99_ms=1),
    }
    report = Report("durable", {})

    durable.judge_beside(report, "SQLite", measured)

    assert "".join("-+"[each.passed] for each in report.verdicts) == verdicts
