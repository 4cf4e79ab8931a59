"""Measure imports: the package after asyncio, and the pytest plugin after pytest.

Run:
    python -m benchmarks.imports [--runs 21] [--json FILE]

Each run is a fresh interpreter that first imports asyncio, or pytest, and then measures one import.
The builds take turns, the first run of each only fills the caches, and the table shows medians:
milliseconds of wall time and of CPU time, and the number of loaded modules.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

SWITCHES = {"compiled": "AIOWHEEL_REQUIRE_EXTENSIONS", "pure": "AIOWHEEL_NO_EXTENSIONS"}
PROGRAM = """
import importlib, sys, time
importlib.import_module(sys.argv[1])
before, wall, cpu = len(sys.modules), time.perf_counter(), time.process_time()
importlib.import_module(sys.argv[2])
print(time.perf_counter() - wall, time.process_time() - cpu, len(sys.modules) - before)
"""


@dataclass(frozen=True)
class Line:
    """One import on one build; the goal is in wall time."""

    module: str
    beside: str
    goal_ms: float


@dataclass(frozen=True)
class Measured:
    """Medians over all runs of one line."""

    module: str
    build: str
    wall_ms: float
    cpu_ms: float
    modules: int
    goal_ms: float


LINES = (
    Line("aiowheel", beside="asyncio", goal_ms=12),
    Line("_aiowheel_pytestplugin", beside="pytest", goal_ms=5),
)


def environment(build: str, cache: str) -> dict[str, str]:
    """Return the variables of a process on *build* that keeps its byte code in *cache*."""
    dropped = {*SWITCHES.values(), "PYTHONDONTWRITEBYTECODE"}
    kept = {name: text for name, text in os.environ.items() if name not in dropped}
    return kept | {SWITCHES[build]: "1", "PYTHONPYCACHEPREFIX": cache}


def run_once(line: Line, build: str, cache: str) -> tuple[float, float, int]:
    """Import in a fresh interpreter; return wall and CPU time in seconds, and loaded modules."""
    result = subprocess.run(  # noqa: S603 - this interpreter, our own program
        [sys.executable, "-c", PROGRAM, line.beside, line.module],
        env=environment(build, cache),
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        sys.exit(result.stderr)
    wall, cpu, modules = result.stdout.split()
    return float(wall), float(cpu), int(modules)


def has_build(build: str, cache: str) -> bool:
    """Return whether the package that this interpreter imports has *build*."""
    command = [sys.executable, "-c", "import aiowheel"]
    variables = environment(build, cache)
    finished = subprocess.run(command, env=variables, capture_output=True, check=False)  # noqa: S603 - as above
    return finished.returncode == 0


def measure(runs: int, cache: str) -> list[Measured]:
    """Measure every line on every available build, in turns."""
    builds = [build for build in SWITCHES if has_build(build, cache)]
    pairs = [(line, build) for line in LINES for build in builds]
    for line, build in pairs:
        run_once(line, build, cache)
    rounds = [[run_once(line, build, cache) for line, build in pairs] for _ in range(runs)]
    measured: list[Measured] = []
    for place, (line, build) in enumerate(pairs):
        walls, cpus, modules = zip(*(each[place] for each in rounds), strict=True)
        wall_ms, cpu_ms = (statistics.median(times) * 1_000 for times in (walls, cpus))
        measured.append(Measured(line.module, build, wall_ms, cpu_ms, modules[0], line.goal_ms))
    return measured


def table(measured: Sequence[Measured]) -> list[str]:
    """Format the figures, one line for each import."""
    lines = [
        f"{'import':<24} {'build':<9} {'wall ms':>8} {'CPU ms':>8} {'goal ms':>8} {'modules':>8}"
    ]
    lines += [
        f"{each.module:<24} {each.build:<9} {each.wall_ms:8.1f} {each.cpu_ms:8.1f} "
        f"{each.goal_ms:8.0f} {each.modules:8}"
        for each in measured
    ]
    return lines


def main() -> None:
    """Read the arguments, measure, print the table."""
    parser = argparse.ArgumentParser(description="Measure what importing costs.")
    parser.add_argument("--runs", type=int, default=21, help="runs of each line (default: 21)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    arguments = parser.parse_args()
    if arguments.runs < 1:
        parser.error(f"--runs must be 1 or more, got {arguments.runs}")
    with tempfile.TemporaryDirectory() as cache:
        measured = measure(arguments.runs, cache)
    print("\n".join(table(measured)))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(each) for each in measured], indent=1) + "\n")


if __name__ == "__main__":
    main()
