"""Processes are killed and stopped at random: no fire is lost, early, or gets a new id."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from aiowheel.durable import DurableTimers, Fire

from .links import until
from .victim import LEASE, store_at

pytestmark = [
    pytest.mark.durable,
    pytest.mark.one_build,
    pytest.mark.posix,
    pytest.mark.realtime,
    pytest.mark.timeout(1800),
]

ROOT = Path(__file__).parent.parent.parent
KILLS = int(os.environ.get("AIOWHEEL_KILLS", "20"))


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store."""
    if request.param == "sqlite":
        return str(tmp_path / "timers.db")
    found: str = request.getfixturevalue("database")
    return found


def start(address: str, log: Path, number: str) -> subprocess.Popen[bytes]:
    """Start a victim."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.durable.victim", address, str(log), number],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, at most a minute."""
    last = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < last, "the processes make no progress"
        time.sleep(0.02)


def is_ready(log: Path, number: str) -> bool:
    """Return whether a victim is ready."""
    return log.exists() and f"ready {number}\n" in log.read_text()


def play(
    address: str, log: Path, disturb: Callable[[int, list[subprocess.Popen[bytes]]], None]
) -> None:
    """Run two victims at a time, disturb them, and let a last one fire the remaining timers."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(KILLS):
            while len(running) < 2:
                name = f"{number}-{len(running)}"
                running.append(start(address, log, name))
                wait_until(partial(is_ready, log, name))
            time.sleep(random.uniform(0, 1.0))
            disturb(number, running)
        for process in running:
            process.kill()
            process.wait()
        assert start(address, log, "last").wait(timeout=300) == 0
    finally:
        for process in running:
            process.kill()
            process.wait()


def check(log: Path) -> int:
    """Compare the confirmed calls with the fires; return the number of repeated fires."""
    due: dict[str, int] = {}
    doubtful: set[str] = set()
    cancelled: set[str] = set()
    ids: dict[str, set[str]] = {}
    fires = 0
    early: list[str] = []
    for line in log.read_text().splitlines():
        match line.split(" ", 3):
            case ["written", name, when]:
                due[name] = int(when)
            case ["cancelling", name]:
                doubtful.add(name)
            case ["cancelled", name]:
                cancelled.add(name)
            case ["fired", name, fire, at]:
                fires += 1
                ids.setdefault(name, set()).add(fire)
                if name in due and int(at) < due[name]:
                    early.append(line)
            case _:
                pass
    assert early == []
    assert [name for name in due if name not in ids and name not in doubtful] == []
    assert sorted(cancelled & ids.keys()) == []
    assert {name: found for name, found in ids.items() if len(found) > 1} == {}
    assert len(ids) > KILLS
    return fires - len(ids)


def test_killed_processes_lose_nothing(address: str, tmp_path: Path) -> None:
    """Every confirmed timer fires, although processes get SIGKILL at random moments."""
    log = tmp_path / "log"

    def kill(_: int, running: list[subprocess.Popen[bytes]]) -> None:
        victim = running.pop(random.randrange(len(running)))
        victim.kill()
        victim.wait()

    play(address, log, kill)
    check(log)


@pytest.mark.posix
def test_a_stopped_owner_does_no_harm(address: str, tmp_path: Path) -> None:
    """After SIGSTOP for longer than the lease, the process continues and is refused."""
    log = tmp_path / "log"

    def stop(number: int, running: list[subprocess.Popen[bytes]]) -> None:
        if number % 4:
            return
        running[0].send_signal(signal.SIGSTOP)
        time.sleep(4)
        running[0].send_signal(signal.SIGCONT)

    play(address, log, stop)
    check(log)


async def test_an_owner_that_was_stopped_beyond_its_lease_is_fenced_off(
    address: str, tmp_path: Path
) -> None:
    """Another process repeats the fire with the same id; the first acknowledgement is refused."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.durable.slow_handler", address, str(tmp_path)),
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    repeated: list[str] = []
    epochs: list[int] = []
    timers = DurableTimers(store_at(address), lease=LEASE)

    @timers.handler("h")
    def handle(fire: Fire) -> None:
        repeated.append(fire.id)
        epochs.append(fire.epoch)

    try:
        async with timers:
            await until(lambda: 0 < timers.statistics().partitions < 8)
            owned = timers.statistics().partitions
            for number in range(64):  # some of them are in partitions of the other process
                await timers.schedule(f"t{number}", "h", due=timedelta(0))
                if (tmp_path / "began").exists():
                    break
            await until((tmp_path / "began").exists)
            process.send_signal(signal.SIGSTOP)
            first = (tmp_path / "began").read_text(encoding="utf-8")
            await until(lambda: first in repeated)
            assert timers.statistics().partitions > owned
            (tmp_path / "go").touch()
            process.send_signal(signal.SIGCONT)
            await until((tmp_path / "stale").exists)
            assert max(epochs) >= 2
    finally:
        with suppress(ProcessLookupError):  # it may have ended
            process.send_signal(signal.SIGCONT)
            process.kill()
        await process.wait()

    assert int((tmp_path / "stale").read_text(encoding="utf-8")) >= 1
