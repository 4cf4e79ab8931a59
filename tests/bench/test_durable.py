"""`aiowheel bench durable` in its quick size."""

from __future__ import annotations

import json

import pytest

from aiowheel.bench import durable
from aiowheel.cli import run

pytestmark = [pytest.mark.one_build, pytest.mark.realtime, pytest.mark.thorough]


def test_the_quick_size_measures_every_side(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All figures are there; no verdict is expected of a busy machine."""
    small = durable.DurablePlan(pending=100, operations=100, overdue=100, rounds=1)
    monkeypatch.setattr(durable, "QUICK", small)

    assert run(["bench", "durable", "--quick", "--json", "--out", "-"]) in {0, 1}
    content = json.loads(capsys.readouterr().out)
    sides = {series["side"]["name"]: series["rounds"][0] for series in content["rounds"]["durable"]}

    assert {"wheel alone", "SQLite", "SQLite raw"} <= sides.keys()
    assert sides["SQLite"]["schedule_100"] > 0
    assert sides["SQLite"]["fires"] > 0
    assert sides["SQLite"]["page_ms"] > 0
    assert sides["SQLite"]["start_ms"] > 0
    assert sides["SQLite raw"]["commits_of_1000"] > 0
    assert content["verdicts"]
