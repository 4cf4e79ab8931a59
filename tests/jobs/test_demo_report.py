"""`aiowheel demo` with its part on Spark, in the session of the tests."""

import json
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("matplotlib")

from aiowheel.cli import run
from aiowheel.testing import VirtualClockEventLoop
from examples.demo import _hold, _plan
from tests.cli.test_demo import QUICK_CROWD, QUICK_HOLD, SMALL


@pytest.mark.one_build
@pytest.mark.realtime
@pytest.mark.slow
@pytest.mark.spark
def test_the_demo_with_spark_as_json(
    one_session: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Stdout is one JSON object, whose numbers match the trace; a picture is written."""
    monkeypatch.setattr(_plan, "CrowdPlan", partial(_plan.CrowdPlan, **QUICK_CROWD))
    monkeypatch.setattr(_plan, "HoldPlan", partial(_plan.HoldPlan, **QUICK_HOLD))
    monkeypatch.setattr(_hold, "new_loop", VirtualClockEventLoop)

    code = run(["demo", *SMALL, "--json", "--out", str(tmp_path)])

    printed = capsys.readouterr()
    assert code == 0, printed.err
    result = json.loads(printed.out)
    outcomes = {row["purgatory"]: row for row in result["report"]["tables"]["outcomes"]}
    assert result["report"]["operations"] == 1_050
    assert outcomes["long-poll"]["completed"] == result["crowd"]["answered"]
    assert outcomes["long-poll"]["expired"] == result["crowd"]["timed_out"]
    assert outcomes["parcels"]["completed"] == result["hold"]["completed"] == 900
    assert outcomes["parcels"]["early"] == 0
    assert Path(result["report"]["picture"]).read_bytes().startswith(b"\x89PNG")
