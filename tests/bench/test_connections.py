"""The benchmarks over real connections, at sizes that only test that they run."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from aiowheel.cli import run
from aiowheel.testing import VirtualClock
from benchmarks import idle, longpoll
from benchmarks._descriptors import connections_allowed
from benchmarks.baselines import long_polls
from benchmarks.workloads.server_counts import ServerCounts
from benchmarks.workloads.silence import DESIGNS

pytestmark = [pytest.mark.one_build, pytest.mark.realtime, pytest.mark.slow]


@pytest.mark.virtual_time(patience=0)
@pytest.mark.parametrize("design", [name for name in DESIGNS if name not in {"protocol", "task"}])
async def test_every_design_closes_a_silent_connection(
    design: str, virtual_clock: VirtualClock
) -> None:
    """A connection that keeps sending stays open."""
    counts = ServerCounts()
    async with DESIGNS[design](counts, 0.5) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in range(1, 5):
            writer.write(b"x")
            while counts.received < number:  # noqa: ASYNC110 - no time passes meanwhile
                await asyncio.sleep(0)
            await virtual_clock.advance(0.4)
        assert (counts.open, counts.silenced) == (1, 0)

        assert await reader.read() == b""

        assert (counts.open, counts.silenced) == (0, 1)
        writer.close()


GIVEN_UP = """
from pathlib import Path
from time import sleep
from benchmarks._side import Side, Worker

with Worker(Side("given up", {workload!r}, {arguments!r})) as worker:
    process = worker._process
    process.stdin.write("\\n")
    process.stdin.flush()
    while not Path(f"/proc/{{process.pid}}/task/{{process.pid}}/children").read_text():
        sleep(0.01)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the children of a process from /proc")
@pytest.mark.parametrize(
    ("workload", "arguments"),
    [
        (
            "longpoll:rounds",
            {"design": longpoll.OURS, "clients": 10, "topics": 2, "keys": 1}
            | {"rate": 10, "seconds": 60.0},
        ),
        (
            "idle:connections",
            {"design": "protocol", "silent": 5, "talking": 5, "rate": 10, "limit": 60.0},
        ),
    ],
)
def test_clients_end_without_an_error_with_their_server(
    workload: str, arguments: dict[str, Any]
) -> None:
    """After Ctrl-C the clients print no error about the lost server, and no process remains."""
    program = GIVEN_UP.format(workload=workload, arguments=arguments)

    # The pipe is read to its end, which comes when the last process has exited.
    ended = subprocess.run(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, check=True, timeout=200
    )

    assert ended.stderr == b""


@pytest.mark.thorough
def test_every_idle_design_is_measured(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No message is lost, no active connection is closed, and a reduced number is reported."""
    names = ["protocol", idle.REARMED, idle.ON_THE_WHEEL, *idle.OURS]  # one process each
    monkeypatch.setattr(idle, "loops_here", lambda: ["asyncio"])
    monkeypatch.setattr(idle, "SIDES", {name: idle.SIDES[name] for name in names})
    monkeypatch.setattr(idle, "connections_allowed", lambda: 20)

    assert run(["bench", "idle", "--quick", "--connections", "40"]) == 0

    said = capsys.readouterr().out
    assert "10 silent and 10 talking" in said
    assert "40 and 40 were wanted" in said
    content: dict[str, Any] = json.loads((results / "aiowheel-bench" / "idle.json").read_bytes())
    sides = content["rounds"]["asyncio"]
    assert [side["side"]["name"] for side in sides] == names
    assert [side["rounds"][0]["open"] for side in sides] == [20] * len(names)
    (wrong,) = (each for each in content["verdicts"] if each["what"].startswith("messages lost"))
    assert wrong["measured"] == 0


@pytest.mark.virtual_time
@pytest.mark.parametrize("design", long_polls.DESIGNS)
@pytest.mark.parametrize("topics", [[1], [1, 2, 3]], ids=str)
async def test_every_design_answers_waiting_polls(
    design: str, topics: list[int], virtual_clock: VirtualClock
) -> None:
    """A poll is answered by an update, by an earlier update, and after the timeout."""
    polls = long_polls.DESIGNS[design]()
    seen = dict.fromkeys(topics, 0)

    await polls.wait(seen, 0.02)
    assert polls.changed(seen) == {}

    waiting = [asyncio.create_task(polls.wait(seen, 60)) for _ in range(3)]
    await asyncio.sleep(0.01)
    await polls.publish(99)
    await polls.publish(topics[-1])
    await asyncio.gather(*waiting)
    assert polls.changed(seen) == {topics[-1]: 1}

    await polls.wait(seen, 60)
    assert virtual_clock.time() < 1
    await polls.wait({topics[-1]: 1}, 0.01)
    assert polls.changed({topics[-1]: 1}) == {}


def test_every_long_poll_is_answered_once(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All sides run over real connections; memory and every measured rate are reported."""
    monkeypatch.setattr(longpoll, "SUSTAINED", 0.0)

    assert (
        run(["bench", "longpoll", "--quick", "--clients", "50", "--keys", "2", "--rate", "100"])
        == 0
    )

    content = json.loads((results / "aiowheel-bench" / "longpoll.json").read_bytes())
    assert list(content["rounds"]) == ["100"]
    for sides in content["rounds"].values():
        assert [side["side"]["name"] for side in sides] == list(long_polls.DESIGNS)
        for side in sides:
            (figures,) = side["rounds"]
            assert (figures["lost"], figures["twice"], figures["refused"]) == (0, 0, 0)
            assert figures["answers"] > 0
    assert len(content["verdicts"]) == 6


def test_more_topics_a_client_than_there_are_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command exits with 2 and names the legal range."""
    assert run(["bench", "longpoll", "--topics", "3", "--keys", "4"]) == 2

    assert "--keys must be at most --topics 3, got 4" in capsys.readouterr().err


def test_fewer_clients_than_topics_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Without an answer there would be no quantile to report."""
    assert run(["bench", "longpoll", "--quick", "--clients", "1"]) == 2

    assert "--clients must be at least --topics 20, got 1" in capsys.readouterr().err


@pytest.mark.posix
def test_a_hard_limit_of_open_files_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without privileges could not raise it again."""
    import resource

    unlimited, set_limits = resource.RLIM_INFINITY, Mock()
    monkeypatch.setattr(resource, "getrlimit", Mock(return_value=(1_024, unlimited)))
    monkeypatch.setattr(resource, "setrlimit", set_limits)

    assert connections_allowed() == 1_000_000 - 150
    set_limits.assert_called_once_with(resource.RLIMIT_NOFILE, (1_000_000, unlimited))
