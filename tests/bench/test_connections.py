"""The benchmarks over real connections, at sizes that only show that they run."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from aiowheel.bench import idle
from aiowheel.bench.workloads.silence import DESIGNS, Hall
from aiowheel.cli import run

pytestmark = [pytest.mark.realtime, pytest.mark.slow]


@pytest.mark.parametrize("design", [name for name in DESIGNS if name not in {"protocol", "task"}])
async def test_every_design_closes_a_silent_connection(design: str) -> None:
    """And one that talks stays open for as long as it does."""
    hall = Hall()
    async with DESIGNS[design](hall, 0.05) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(8):
            writer.write(b"x")
            await asyncio.sleep(0.01)
        assert (hall.open, hall.received, hall.silenced) == (1, 8, 0)

        assert await reader.read() == b""

        assert (hall.open, hall.silenced) == (0, 1)
        writer.close()


def test_idle_connections_are_measured_in_every_way(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No message is lost, no connection that talks is closed, and fewer than asked for is said."""
    names = ["protocol", idle.REARMED, idle.ON_THE_WHEEL, *idle.OURS]  # a process each
    monkeypatch.setattr(idle, "loops_here", lambda: ["asyncio"])
    monkeypatch.setattr(idle, "SIDES", {name: idle.SIDES[name] for name in names})
    monkeypatch.setattr(idle, "connections_allowed", lambda: 20)

    assert run(["bench", "idle", "--quick", "--connections", "40"]) == 0

    said = capsys.readouterr().out
    assert "10 silent and 10 talking" in said
    assert "40 and 40 were asked for" in said
    content: dict[str, Any] = json.loads((results / "aiowheel-bench" / "idle.json").read_bytes())
    sides = content["rounds"]["asyncio"]
    assert [side["side"]["name"] for side in sides] == names
    assert [side["rounds"][0]["open"] for side in sides] == [20] * len(names)
    (wrong,) = (each for each in content["verdicts"] if each["what"].startswith("messages lost"))
    assert wrong["measured"] == 0
