"""`make bench-compare BASE=...`: measure this tree beside the commit that it started from.

Run:
    python tools/bench_compare.py BASE [--rounds 9] [--only NAME]

The trees of the commit BASE and of this checkout are compiled into folders of `build/compare`. Each
workload then runs on both in turn, in separate processes. The table shows the CPU time of one
operation and, if valgrind is installed, its number of instructions. On a busy machine times vary
by half; the counts of callgrind do not.
"""

import argparse
import asyncio
import gc
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "compare"
OPERATIONS = 20_000  # in a timed round
COUNTED = 2_000  # in a run under valgrind, which is about fifty times slower
PENDING = 10_000  # timers and operations that stay pending during a round


# --- workloads: what both commits must offer ------------------------------------------------------


async def churn(count: int) -> float:
    """`Timer.call_later` and `cancel`, with other pending timers."""
    import aiowheel

    async with aiowheel.Timer() as timer:
        standing = [timer.call_later(60.0 + at, print) for at in range(PENDING)]
        begun = time.process_time()
        for _ in range(count):
            timer.call_later(30.0, print).cancel()
        spent = time.process_time() - begun
        for handle in standing:
            handle.cancel()
    return spent


async def touch(count: int) -> float:
    """`TimerHandle.touch` of one of many handles."""
    import aiowheel

    async with aiowheel.Timer() as timer:
        standing = [timer.call_later(60.0, print) for _ in range(PENDING)]
        begun = time.process_time()
        for at in range(count):
            standing[at % PENDING].touch()
        spent = time.process_time() - begun
        for handle in standing:
            handle.cancel()
    return spent


async def timeout(count: int) -> float:
    """A block under `aiowheel.timeout` that ends in time."""
    import aiowheel

    begun = time.process_time()
    for _ in range(count):
        async with aiowheel.timeout(30.0):
            pass
    return time.process_time() - begun


async def fire(count: int) -> float:
    """Timers of a `ManualTimer` that become due."""
    import aiowheel

    timer = aiowheel.ManualTimer()
    calls: list[int] = []
    begun = time.process_time()
    for at in range(count):
        timer.call_later(at / 1e3, calls.append, at)
    timer.advance(count / 1e3 + 1.0)
    spent = time.process_time() - begun
    assert len(calls) == count
    return spent


async def watch(count: int) -> float:
    """`try_complete_else_watch` with two keys, and the check that completes the operation."""
    import aiowheel

    class Reply(aiowheel.DelayedOperation[None]):
        arrived = False

        def try_complete(self) -> bool:
            return self.arrived and self.force_complete()

    purgatory = aiowheel.Purgatory("compare", timer=aiowheel.ManualTimer())
    begun = time.process_time()
    for at in range(count):
        operation = Reply(timeout=30.0)
        purgatory.try_complete_else_watch(operation, [at % 100, "all"])
        operation.arrived = True
        purgatory.check_and_complete(at % 100)
    return time.process_time() - begun


async def loop_timers(count: int) -> float:
    """`loop.call_later` and `cancel` on a wheel loop."""
    loop = asyncio.get_running_loop()
    begun = time.process_time()
    for _ in range(count):
        loop.call_later(30.0, print).cancel()
    return time.process_time() - begun


WORKLOADS: dict[str, Callable[[int], Coroutine[None, None, float]]] = {
    "churn": churn,
    "touch": touch,
    "timeout": timeout,
    "fire": fire,
    "watch": watch,
    "loop": loop_timers,
}


def run_workload(name: str, count: int) -> float:
    """Run one workload in this process; return the CPU seconds that its operations took."""
    import aiowheel

    gc.disable()  # its runs come at random and do not belong to an operation
    return aiowheel.run(WORKLOADS[name](count), uvloop=False)


# --- two trees ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """One of the two built commits.

    Attributes:
        name: Its name in the table.
        folder: Holds the package.
    """

    name: str
    folder: Path

    def seconds(self, workload: str) -> float:
        """Return the CPU seconds of one operation."""
        printed = self._run([sys.executable], workload, OPERATIONS)
        return float(json.loads(printed.stdout)) / OPERATIONS

    def instructions(self, workload: str) -> float:
        """Return the instructions of one operation: a run with many less a run with none."""
        tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable]
        runs = [self._run(tool, workload, count).stderr for count in (COUNTED, 0)]
        many, none = map(collected, runs)
        return (many - none) / COUNTED

    def _run(
        self, interpreter: Sequence[str], workload: str, count: int
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(  # noqa: S603 - our own words
            [*interpreter, __file__, "--run", workload, str(count)],
            # Both sides get the same hash seed, and only their own code.
            env=os.environ
            | {"PYTHONPATH": str(self.folder), "PYTHONHASHSEED": "0"}
            | {"AIOWHEEL_REQUIRE_EXTENSIONS": "1"},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=True,
        )


def collected(stderr: str) -> int:
    """Read the count of instructions that callgrind prints at its end."""
    found = re.search(r"Collected\s*:\s*(\d+)", stderr)
    if found is None:
        raise ValueError(f"callgrind printed no count: {stderr[-200:]}")
    return int(found[1])


def build_side(name: str, tree: Path) -> Side:
    """Compile the package of a tree into a folder."""
    print(f"bench-compare: compiling {name}", file=sys.stderr, flush=True)
    folder = FOLDER / name
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(  # noqa: S603 - our own words
        [*pip, "--target", str(folder), str(tree)],
        env=os.environ | {"AIOWHEEL_REQUIRE_EXTENSIONS": "1"},
        check=True,
    )
    return Side(name, folder)


def checked_out(base: str) -> Path:
    """Check a commit out in a folder of its own.

    Raises:
        SystemExit: There is no such commit, or git cannot check it out.
    """
    commit = git("rev-parse", "--verify", "--quiet", f"{base}^{{commit}}", check=False)
    if not commit:
        sys.exit(f"bench-compare: BASE must be a commit of this repository, got {base!r}")
    tree = FOLDER / "base-tree"
    git("worktree", "add", "--detach", "--force", str(tree), commit)
    return tree


def git(*words: str, check: bool = True) -> str:
    """Run git in this repository and return its output.

    Raises:
        SystemExit: git failed, and *check* is true.
    """
    done = subprocess.run(  # noqa: S603 - our own words
        ["git", "-C", str(ROOT), *words],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    if check and done.returncode != 0:
        sys.exit(f"bench-compare: git {' '.join(words[:2])}: {done.stderr.strip()}")
    return done.stdout.strip()


def compare(base: Side, here: Side, names: Sequence[str], rounds: int) -> list[list[str]]:
    """Measure both sides; return the rows of the table."""
    counts = shutil.which("valgrind") is not None
    rows: list[list[str]] = []
    for name in names:
        print(f"bench-compare: {name}", file=sys.stderr, flush=True)
        # The sides alternate in who runs first, so that a slow phase of the machine slows both.
        times: dict[str, list[float]] = {"base": [], "here": []}
        for number in range(rounds):
            for side in (base, here) if number % 2 else (here, base):
                times[side.name].append(side.seconds(name))
        instructions = [side.instructions(name) for side in (base, here)] if counts else []
        rows.append(row_of(name, times["base"], times["here"], instructions))
    return rows


def row_of(
    name: str, base: Sequence[float], here: Sequence[float], instructions: Sequence[float]
) -> list[str]:
    """Return one row: medians in nanoseconds, the median of the rounds' ratios, and counts."""
    ratio = statistics.median(new / old for old, new in zip(base, here, strict=True))
    row = [name]
    row += [f"{1e9 * statistics.median(times):,.0f}" for times in (base, here)]
    row += [percent(ratio)]
    if not instructions:
        return [*row, "-", "-", "-"]
    old, new = instructions
    return [*row, f"{old:,.0f}", f"{new:,.0f}", percent(new / old)]


def percent(ratio: float) -> str:
    """Return a ratio as a change in percent."""
    return f"{100 * (ratio - 1):+.1f} %"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return the rows as aligned columns below their headings."""
    headings = ["an operation of", "base, ns", "here, ns", "time"]
    headings += ["base, instructions", "here, instructions", "instructions"]
    lines = [headings, *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(headings))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, or run one workload for a comparison."""
    parser = argparse.ArgumentParser(description="Compare this tree with another commit.")
    parser.add_argument("base", nargs="?", help="a commit, a tag or a branch")
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds of each side")
    parser.add_argument("--only", choices=WORKLOADS, help="one workload")
    parser.add_argument("--run", nargs=2, metavar=("NAME", "COUNT"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.run:
        name, count = options.run
        print(json.dumps(run_workload(name, int(count))))
        return
    if not options.base:
        parser.error("name a commit to compare with: make bench-compare BASE=main")
    git("worktree", "prune", check=False)
    shutil.rmtree(FOLDER, ignore_errors=True)
    tree = checked_out(options.base)
    try:
        base, here = build_side("base", tree), build_side("here", ROOT)
    finally:
        git("worktree", "remove", "--force", str(tree), check=False)
    names = [options.only] if options.only else list(WORKLOADS)
    print(table(compare(base, here, names, options.rounds)))


if __name__ == "__main__":
    main()
