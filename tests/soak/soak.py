"""Mixed work on an event loop for a given time, with an exact account of every call.

A program, for one loop:

    python -m tests.soak.soak LOOP [--minutes 20] [--rate 50000] [--seed 1]

`make soak MINUTES=20` runs it on every loop, one after the other.

The time is divided into phases. At the end of each phase new work stops and pending work ends. Then
every count is compared with the account that the work itself keeps: no call is lost, none runs
twice, none is early. No token is alive that a callback or a context kept, the wheel is empty and
its structure is sound. Memory is measured at these quiet moments: after the warm-up, which is a
quarter of the phases, it must not grow. After the loop is closed, no task, thread, descriptor or
file is left.

The blocks that the interpreter has allocated are always checked. Resident memory is checked if the
run takes a minute or more, because the allocator needs that long to reach its size.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import psutil

from aiowheel import Purgatory, Timer, new_event_loop

from .idle_work import IdleWork
from .living import InjectedError, Token
from .loop_work import LoopWork
from .purgatory_work import PurgatoryWork
from .task_work import TaskWork
from .thread_work import ThreadWork
from .timer_work import TimerWork

TURN = 200  # steps between two turns of the loop
LONG = 60.0  # seconds; in a shorter run resident memory is not checked
PATIENCE = 60.0  # seconds for pending work to end after a phase
STALLS_A_SECOND = 2.0
LONGEST_STALL = 0.05
#: How much memory may grow after the warm-up. Blocks: new levels of the wheel, and numbers in the
#: statistics. Bytes: fragments of the allocator as well.
MOST_BLOCKS = 5_000
MOST_BYTES = 1_000_000


class Account(Protocol):
    """The account of one kind of work."""

    def settle(self) -> None:
        """Stop work that would not end by itself."""
        ...

    def pending(self) -> int:
        """Return the number of calls that have begun and not ended."""
        ...

    def flaws(self) -> list[str]:
        """Return descriptions of what is wrong when nothing is pending."""
        ...


class Work(Account, Protocol):
    """Work that runs step by step on the loop."""

    def steps(self) -> dict[str, int]:
        """Return the methods among which a turn chooses, with their weights."""
        ...


@dataclass(slots=True)
class Report:
    """The result of a soak.

    Attributes:
        operations: Number of steps.
        seconds: Duration of the steps, without the quiet moments.
        stalls: Times the loop was blocked on purpose.
        bursts: Times many deadlines were armed for one moment.
        memory: At each quiet moment: blocks of the interpreter, and resident bytes.
        flaws: Empty if no check failed.
    """

    operations: int = 0
    seconds: float = 0.0
    stalls: int = 0
    bursts: int = 0
    memory: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    flaws: list[str] = field(default_factory=list[str])

    def growth(self) -> tuple[int, int]:
        """Return the growth of memory after the warm-up, in blocks and bytes."""
        first, last = self.memory[max(len(self.memory) // 4 - 1, 0)], self.memory[-1]
        return last[0] - first[0], last[1] - first[1]

    def check_memory(self) -> None:
        """Add a flaw if memory grew."""
        blocks, size = self.growth()
        if blocks > MOST_BLOCKS or (size > MOST_BYTES and self.seconds >= LONG):
            self.flaws.append(f"memory grew by {blocks:,} blocks and {size:,} bytes")

    def line(self, loop: str) -> str:
        """Return the report in one line."""
        blocks, size = self.growth()
        rate = self.operations / self.seconds
        return (
            f"{loop}: {self.operations:,} operations, {rate:,.0f} a second, {self.stalls} stalls, "
            f"{self.bursts} bursts; memory {blocks:+,} blocks, {size / 1e6:+.2f} MB after warm-up; "
            f"{len(self.flaws)} flaws"
        )


class Soak:
    """A soak of one loop."""

    def __init__(self, seconds: float, rate: int, seed: int) -> None:
        self._seconds = seconds
        self._rate = rate
        self._chance = random.Random(seed)
        self._report = Report()
        self._errors: list[dict[str, Any]] = []  # errors that were not raised on purpose
        self._injected = 0  # injected errors that reached the loop's exception handler

    async def run(self) -> Report:
        """Run all phases."""
        asyncio.get_running_loop().set_exception_handler(self._note_error)
        async with Timer() as timer, Purgatory(timer=timer) as purgatory:
            timers = TimerWork(timer, self._chance)
            threads = ThreadWork(timer, purgatory, self._chance)
            works: list[Work] = [
                timers,
                LoopWork(self._chance),
                IdleWork(timer, self._chance),
                PurgatoryWork(purgatory, self._chance),
                TaskWork(timer, self._chance),
            ]
            phases = 12 if self._seconds >= LONG else 4
            for _ in range(phases):
                threads.open()
                await self._work(works, timers, self._seconds / phases)
                await self._settle([*works, threads], timer)
                self._compare([*works, threads], timer, timers)
                self._measure()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            self._report.flaws.append(f"{len(left)} tasks are left: {left}")
        self._report.flaws += [f"an error of its own: {error}" for error in self._errors[:5]]
        return self._report

    async def _work(self, works: list[Work], timers: TimerWork, seconds: float) -> None:
        """Make steps at the rate, for one phase."""
        steps: list[Callable[[], object]] = []
        weights: list[int] = []
        for work in works:
            for name, weight in work.steps().items():
                steps.append(getattr(work, name))
                weights.append(weight)
        began = time.monotonic()
        made = 0
        while (passed := time.monotonic() - began) < seconds:
            for step in self._chance.choices(steps, weights, k=TURN):
                step()
            made += TURN
            ahead = made / self._rate - passed
            await asyncio.sleep(max(0.0, ahead))
            self._disturb(timers, TURN / self._rate)
        self._report.operations += made
        self._report.seconds += time.monotonic() - began

    def _disturb(self, timers: TimerWork, seconds: float) -> None:
        """Block the loop at times, or arm a burst; *seconds* is the length of a turn."""
        if self._chance.random() < STALLS_A_SECOND * seconds:
            time.sleep(self._chance.random() * LONGEST_STALL)
            self._report.stalls += 1
        elif self._chance.random() < STALLS_A_SECOND * seconds:
            timers.burst()
            self._report.bursts += 1

    async def _settle(self, works: list[Account], timer: Timer) -> None:
        """Wait until nothing is pending."""
        for work in works:
            work.settle()
        end = time.monotonic() + PATIENCE
        while any(work.pending() for work in works) and time.monotonic() < end:
            await timer.sleep(0.01)
        for _ in range(5):  # let callbacks of futures run
            await asyncio.sleep(0)

    def _compare(self, works: list[Account], timer: Timer, timers: TimerWork) -> None:
        """Compare the counts with the accounts."""
        flaws = self._report.flaws
        for work in works:
            flaws += work.flaws()
            if work.pending():
                flaws.append(f"{type(work).__name__}: {work.pending()} pending in a quiet moment")
        counted = timer.statistics()
        if counted.pending or len(timer):
            flaws.append(f"the timer has {counted.pending} pending")
        if counted.scheduled != counted.fired + counted.cancelled:
            flaws.append(f"the timer does not add up: {counted}")
        if not counted.callback_errors == self._injected == timers.raised:
            flaws.append(
                f"{timers.raised} callbacks raised, the timer counts {counted.callback_errors} "
                f"and reported {self._injected}"
            )
        timer.open_driver().wheel.check_invariants()

    def _measure(self) -> None:
        """Collect garbage and measure memory."""
        gc.collect()
        if Token.alive:
            self._report.flaws.append(f"{Token.alive} tokens are kept alive")
        resident = psutil.Process().memory_info().rss
        self._report.memory.append((sys.getallocatedblocks(), resident))

    def _note_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), InjectedError):
            self._injected += 1
        else:
            self._errors.append(context)


def make_loop(name: str) -> asyncio.AbstractEventLoop:
    """Return a loop by its name in `LOOPS`."""
    if name == "asyncio":
        return asyncio.SelectorEventLoop()
    if name == "uvloop":
        import uvloop

        return uvloop.new_event_loop()
    return new_event_loop(uvloop=name == "wheel on uvloop")


LOOPS = ("asyncio", "uvloop", "wheel on asyncio", "wheel on uvloop")


def soak(name: str, seconds: float, rate: int, seed: int) -> Report:
    """Soak one loop in an empty folder; add a flaw for anything that stays behind."""
    process = psutil.Process()
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        make_loop(name).close()  # uvloop opens two descriptors for the whole process
        import_module("structlog")  # the first log event would import it, and memory would grow
        before = process.num_fds(), process.num_threads()
        loop = make_loop(name)
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            report = runner.run(Soak(seconds, rate, seed).run())
        after = process.num_fds(), process.num_threads()
        if after != before:
            report.flaws.append(f"(descriptors, threads) were {before} and are {after}")
        report.flaws += [f"a file is left: {path}" for path in Path(folder).iterdir()]
    report.check_memory()
    return report


def main() -> int:
    """Soak, print, and return 1 if there is a flaw."""
    parser = argparse.ArgumentParser(description="Mixed work, all of it accounted for.")
    parser.add_argument("loop", choices=LOOPS)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--rate", type=int, default=50_000, help="operations a second")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    report = soak(options.loop, options.minutes * 60, options.rate, options.seed)
    print(report.line(options.loop))
    for flaw in report.flaws:
        print(f"    {flaw}")
    return bool(report.flaws)


if __name__ == "__main__":
    sys.exit(main())
