"""`aiowheel demo` in a small size, and its parts."""

import asyncio
import re
import socket
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aiowheel.errors import AiowheelError

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("pyarrow")

from aiowheel.cli import run
from aiowheel.testing import VirtualClockEventLoop
from aiowheel.trace import read_trace
from examples.demo import _descriptors, _hold, _needs, _plan
from examples.demo._checks import EARLY, check, crowd_sums, hold_sums, outcome_sums
from examples.demo._connection import HttpConnection
from examples.demo._crowd import CrowdResult, run_crowd
from examples.demo._hold import HoldResult, run_hold
from examples.demo._plan import CrowdPlan, HoldPlan

pytestmark = [pytest.mark.one_build, pytest.mark.realtime]

SMALL = ["--clients", "50", "--operations", "1000"]
CROWD = CrowdPlan(
    clients=40, topics=8, poll_timeout=1.5, publish_over=0.1, idle_timeout=1.0, ping_every=0.05
)
HOLD = HoldPlan(
    operations=500,
    depots=50,
    owners=7,
    shortest_timeout=1.0,
    longest_timeout=1.2,
    events_over=0.05,
)
CROWD_RESULT = CrowdResult(
    port=1,
    clients=10,
    topics=2,
    parked=10,
    published=1,
    answered=7,
    timed_out=3,
    completed=7,
    expired=3,
    news_after=(0.001,),
    silent=9,
    silent_found=9,
    talking=1,
    talking_found=0,
)
HOLD_RESULT = HoldResult(
    operations=10,
    keys=4,
    held=10,
    watch_seconds=0.1,
    events=4,
    reported=8,
    completed=8,
    expired=2,
    left=0,
)


def ignore(_done: int, _of: int) -> None:
    """Ignore the progress."""


QUICK_CROWD: dict[str, Any] = {
    "poll_timeout": 2.0,
    "publish_over": 0.2,
    "idle_timeout": 1.5,
    "ping_every": 0.05,
}
QUICK_HOLD: dict[str, Any] = {"shortest_timeout": 1.5, "longest_timeout": 1.8, "events_over": 0.1}


def test_every_client_is_answered_or_times_out(tmp_path: Path) -> None:
    """The counts of real clients match those of the server and of the trace.

    The server has stopped when the part ends.
    """
    result = run_crowd(CROWD, tmp_path, ignore)

    check(crowd_sums(result))
    assert result.clients == 40
    assert result.answered > 0
    assert result.timed_out > 0
    assert result.talking == 4
    outcomes = read_trace(tmp_path)["outcome"].to_pylist()
    assert Counter(outcomes) == {"completed": result.answered, "expired": result.timed_out}
    with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(("127.0.0.1", result.port))


async def test_a_connection_that_the_server_closes_is_named() -> None:
    """A missing answer raises an error with the connection's name, and does not block."""

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        connection = await HttpConnection.open(server.sockets[0].getsockname()[1])
        with pytest.raises(AiowheelError, match=f"{connection.address}: the server closed"):
            await connection.request("GET", "/")
        await connection.aclose()


def test_operations_are_held_and_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are pending at the same time; nine of ten complete, the others expire, none early."""
    monkeypatch.setattr(_hold, "new_loop", VirtualClockEventLoop)

    result = run_hold(HOLD, tmp_path, ignore)

    check(hold_sums(result))
    assert (result.held, result.completed, result.expired) == (500, 450, 50)
    lateness = read_trace(tmp_path)["lateness"].drop_null().to_pylist()
    assert len(lateness) == 50
    assert min(lateness) >= 0


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"answered": 6}, "9 clients answered or timed out, but 10 clients"),
        ({"completed": 8}, "7 answered clients, but 8 requests completed"),
        ({"silent_found": 8}, "8 silent connections found, but 9 silent clients"),
    ],
)
def test_sums_that_differ_are_named(change: dict[str, Any], text: str) -> None:
    """The error names both counts."""
    check(crowd_sums(CROWD_RESULT))

    with pytest.raises(AiowheelError, match=text):
        check(crowd_sums(replace(CROWD_RESULT, **change)))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"held": 9}, "9 operations held at once, but 10 operations"),
        ({"reported": 7}, "7 completions reported, but 8 completions counted"),
        ({"left": 1}, "1 operations left over, but 0 none"),
    ],
)
def test_operations_that_are_lost_are_named(change: dict[str, Any], text: str) -> None:
    """A lost operation fails the demo."""
    check(hold_sums(HOLD_RESULT))

    with pytest.raises(AiowheelError, match=text):
        check(hold_sums(replace(HOLD_RESULT, **change)))


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (("long-poll", "expired"), "4 long-poll operations expired in the trace"),
        (("parcels", "failed"), "21 operations in the trace, but 20 counted live"),
        (("parcels", EARLY), "1 timeouts ahead of their deadline in the trace"),
    ],
)
def test_a_trace_that_differs_is_named(more: tuple[str, str], text: str) -> None:
    """The trace must match the live counts, and no timeout may be early."""
    outcomes = Counter(
        {
            ("long-poll", "completed"): 7,
            ("long-poll", "expired"): 3,
            ("parcels", "completed"): 8,
            ("parcels", "expired"): 2,
        }
    )
    check(outcome_sums("the trace", outcomes, CROWD_RESULT, HOLD_RESULT))

    outcomes[more] += 1
    with pytest.raises(AiowheelError, match=text):
        check(outcome_sums("the trace", outcomes, CROWD_RESULT, HOLD_RESULT))


@pytest.mark.skipif(sys.platform == "win32", reason="no limit there")
@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "allowed", "raised_to"),
    [
        (10_000, 10_000, 2_000, 2_000, None),
        (1_024, 10_000, 2_000, 2_000, 4_200),
        (1_024, 2_000, 2_000, 900, 2_000),
        (100, 100, 2_000, 1, 100),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_it_goes(
    monkeypatch: pytest.MonkeyPatch,
    soft: int,
    hard: int,
    wanted: int,
    allowed: int,
    raised_to: int | None,
) -> None:
    """Each client needs two files; a lower hard limit reduces the number of clients."""
    import resource

    raised: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda *limit: raised.append(limit))

    assert _descriptors.clients_allowed(wanted) == allowed
    assert [limit[1] for limit in raised] == ([] if raised_to is None else [(raised_to, hard)])


def test_a_missing_extra_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The line is the command that installs all missing extras; nothing has started before."""
    monkeypatch.setattr(_needs, "find_spec", lambda _: None)

    assert run(["demo", "--out", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == "aiowheel: this needs: pip install 'aiowheel[trace,web]'\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [["--clients", "0"], ["--operations", "-1"]])
def test_a_senseless_size_is_bad_usage(arguments: list[str]) -> None:
    """Sizes must be at least 1."""
    assert run(["demo", *arguments]) == 2


def test_a_file_in_the_place_of_the_folder_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error comes before the start, and the file is unchanged."""
    file = tmp_path / "notes.txt"
    file.write_text("mine")

    assert run(["demo", "--no-spark", "--out", str(file)]) == 2
    refusal = f"--out must be a folder, got {file}: {file} is a file"
    assert capsys.readouterr() == ("", f"aiowheel: {refusal}\n")
    assert file.read_text() == "mine"


def earlier_trace(out: Path) -> Path:
    """Put a trace into *out*, and the mark of an earlier demo; return the trace."""
    trace = out / "trace" / "trace-old-000001.parquet"
    trace.parent.mkdir(parents=True)
    trace.write_bytes(b"an earlier demo's")
    (out / ".aiowheel-demo").touch()
    return trace


def test_a_folder_with_files_of_others_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The demo would replace them; they are unchanged."""
    mine = tmp_path / "trace" / "trace-mine-000001.parquet"
    mine.parent.mkdir()
    mine.write_bytes(b"mine")

    assert run(["demo", "--no-spark", "--out", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        "aiowheel: --out must be a new or an empty folder, or that of an earlier demo, "
        f"got {tmp_path}: the demo would replace files in it\n"
    )
    assert list(tmp_path.rglob("*")) == [mine.parent, mine]


def test_a_bad_log_ends_the_demo_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 2, with one line, before the first part; earlier results stay."""
    log = tmp_path / "access.log"
    log.write_text("this is no access log\n")
    earlier = earlier_trace(tmp_path / "out")

    assert run(["demo", "--no-spark", "--out", str(tmp_path / "out"), "--log", str(log)]) == 2
    printed = capsys.readouterr()
    assert "Part 1" not in printed.out
    assert re.fullmatch(r"aiowheel: .*access\.log: no good row.*\n", printed.err)
    assert earlier.exists()


def test_a_missing_log_is_the_only_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The demo prints no heading, and makes no folder."""
    out, log = tmp_path / "out", tmp_path / "access.log"

    assert run(["demo", "--no-spark", "--out", str(out), "--log", str(log)]) == 2
    assert capsys.readouterr() == ("", f"aiowheel: {log}: no such file\n")
    assert not out.exists()


@pytest.mark.slow
def test_the_demo_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It runs two parts and searches a log; a pipe gets plain text; the printed files exist."""
    log = tmp_path / "access.log"
    log.write_text(
        '10.0.0.1 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 1\n'
        '10.0.0.1 - - [01/Jan/2026:00:01:00 +0000] "GET / HTTP/1.1" 200 1\n'
    )
    out = tmp_path / "out"
    earlier_trace(out)
    monkeypatch.setattr(_plan, "CrowdPlan", partial(CrowdPlan, **QUICK_CROWD))
    monkeypatch.setattr(_plan, "HoldPlan", partial(HoldPlan, **QUICK_HOLD))
    monkeypatch.setattr(_hold, "new_loop", VirtualClockEventLoop)

    code = run(["demo", *SMALL, "--no-spark", "--out", str(out), "--log", str(log)])

    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert printed.err == "part 1: serving the clients ...\npart 2: finishing the operations ...\n"
    assert "50 clients connected" in printed.out
    assert "1,000 delayed operations waited at once" in printed.out
    assert "left out, because of --no-spark" in printed.out
    assert "All sums agree." in printed.out
    assert "\x1b" not in printed.out
    assert read_trace(out / "trace").num_rows == 1_050
    assert (out / "idle.csv").read_text() == (
        "fire,key\n1767225630,10.0.0.1\n1767225690,10.0.0.1\n"
    )
