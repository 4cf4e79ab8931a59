"""A few seconds of the soak on every loop; `make soak MINUTES=20` is the long run."""

from __future__ import annotations

import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from aiowheel import ManualTimer, Purgatory, Timer

from .living import Token
from .purgatory_work import PurgatoryWork
from .soak import LOOPS, MOST_BLOCKS, Report
from .timer_work import TimerWork

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parent.parent.parent
QUICK = tuple(loop for loop in LOOPS if loop != "wheel on asyncio")


@pytest.mark.slow
@pytest.mark.realtime
def test_everything_is_accounted_for() -> None:
    """Each loop runs in its own process, so that nothing else uses memory and descriptors."""
    loops = [loop for loop in QUICK if find_spec("uvloop") or "uvloop" not in loop]
    command = [sys.executable, "-m", "tests.soak.soak", "--minutes", "0.02", "--rate", "20000"]

    def run(loop: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, loop], capture_output=True, text=True, check=False, cwd=ROOT
        )

    with ThreadPoolExecutor(len(loops)) as pool:
        ended = list(pool.map(run, loops))

    for each in ended:
        assert (each.returncode, each.stderr) == (0, ""), each.stdout
        assert each.stdout.endswith(" 0 flaws\n")


def test_a_callback_that_is_lost_is_noticed() -> None:
    """The work's own account differs from the counts of the timer."""
    timer = ManualTimer()
    work = TimerWork(timer, random.Random(1))
    for _ in range(10):
        work.arm()
    for entry in timer.open_driver().wheel.pending()[:1]:
        entry.cancel()  # cancelled without the handle

    timer.advance(1)

    assert work.pending() == 1


def test_a_callback_that_runs_early_is_noticed() -> None:
    """Its deadline was later than the time at which it ran."""
    timer = ManualTimer()
    work = TimerWork(timer, random.Random(1))
    work._arm(0.1).deadline = 0.3

    timer.advance(0.2)

    assert work.flaws() == ["1 callbacks ran early"]


def test_an_operation_that_ends_twice_is_noticed() -> None:
    """The account of the purgatory has one completion too many."""
    purgatory = Purgatory(timer=ManualTimer())
    work = PurgatoryWork(purgatory, random.Random(1))

    work.watch_without_awaiter()
    for operation in purgatory.pending():
        operation.force_complete()
        operation.on_complete()

    assert len(work.flaws()) == 2


def test_a_leaked_token_is_noticed() -> None:
    """The class counts the tokens that are alive."""
    kept = [Token()]
    assert Token.alive == 1

    kept.clear()

    assert Token.alive == 0


def test_memory_that_grows_is_noticed() -> None:
    """Memory may grow during the warm-up, but not after it."""
    memory = [(0, 0), (5_000, 0), (10_000, 0), *[(10_000, 0)] * 9]
    flat = Report(memory=memory)
    grown = Report(memory=[*memory[:-1], (10_001 + MOST_BLOCKS, 0)])

    flat.check_memory()
    grown.check_memory()

    assert flat.flaws == []
    assert len(grown.flaws) == 1


def test_every_named_step_exists() -> None:
    """An unknown step would end a long run at its start."""
    timer: Timer = ManualTimer()
    work = TimerWork(timer, random.Random(1))

    assert all(callable(getattr(work, name)) for name in work.steps())
