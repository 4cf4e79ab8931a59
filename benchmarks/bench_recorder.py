"""What recording costs: per operation, beside an awaited watch of a purgatory.

Run:
    python benchmarks/bench_recorder.py [--operations 1000000] [--rounds 5] [--json FILE]

Prints three figures per operation, in nanoseconds of CPU time of the whole process, the writer's
thread included: an awaited watch that an event completes, the same with a recorder, and the
recorder alone. Rounds with and without the recorder alternate, and the medians are compared.
"""

import argparse
import asyncio
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aiowheel import DelayedOperation, Purgatory, Timer, build_info
from aiowheel.trace import RecorderStatistics, TraceRecorder

WAITING = 1_000  # operations that wait at one time in a round


class Arrival(DelayedOperation[None]):
    """Completes once its flag is set."""

    arrived = False

    def try_complete(self) -> bool:
        """Check the flag."""
        return self.arrived and self.force_complete()

    def on_complete(self) -> None:
        """Nothing to hand over."""


@dataclass(frozen=True)
class Round:
    """One round: CPU seconds, and what the recorder counted."""

    cpu_seconds: float
    recorded: RecorderStatistics | None


async def await_watches(purgatory: Purgatory, operations: int) -> None:
    """Watch, complete and await so many operations, `WAITING` at a time."""
    for start in range(0, operations, WAITING):
        arrivals = [Arrival(30.0) for _ in range(min(WAITING, operations - start))]
        waits = [
            asyncio.ensure_future(purgatory.watch(arrival, [("key", place)]))
            for place, arrival in enumerate(arrivals)
        ]
        for place, arrival in enumerate(arrivals):
            arrival.arrived = True
            purgatory.check_and_complete(("key", place))
        for wait in waits:
            await wait


async def run_round(operations: int, recorder: TraceRecorder | None) -> Round:
    """Measure one round, closing of the recorder included."""
    instruments = () if recorder is None else (recorder,)
    started = time.process_time()
    async with Timer() as timer, Purgatory("bench", timer=timer, instruments=instruments) as room:
        await await_watches(room, operations)
    if recorder is not None:
        await recorder.aclose()
    cpu_seconds = time.process_time() - started
    return Round(cpu_seconds, None if recorder is None else recorder.statistics())


def measure(operations: int, rounds: int) -> tuple[list[Round], list[Round]]:
    """Rounds without and with a recorder, in turn."""
    bare: list[Round] = []
    recorded: list[Round] = []
    for _ in range(rounds):
        bare.append(asyncio.run(run_round(operations, None)))
        with tempfile.TemporaryDirectory(prefix="aiowheel-bench-") as folder:
            recorded.append(asyncio.run(run_round(operations, TraceRecorder(Path(folder)))))
    return bare, recorded


def median_ns(rounds: Sequence[Round], operations: int) -> float:
    """Median CPU time per operation."""
    return statistics.median(one.cpu_seconds for one in rounds) / operations * 1e9


def main() -> None:
    """Measure, print a table, write JSON where asked for."""
    parser = argparse.ArgumentParser(description="Measure what recording costs.")
    parser.add_argument("--operations", type=int, default=100_000, help="per round")
    parser.add_argument("--rounds", type=int, default=5, help="with and without, each")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    operations: int = arguments.operations

    bare, recorded = measure(operations, arguments.rounds)
    counts = [one.recorded for one in recorded if one.recorded is not None]
    bare_ns, recorded_ns = median_ns(bare, operations), median_ns(recorded, operations)
    figures = {
        "python": platform.python_version(),
        "build": "compiled" if build_info().accelerated else "pure",
        "operations": operations,
        "rounds": arguments.rounds,
        "awaited_watch_ns": round(bare_ns),
        "awaited_watch_recorded_ns": round(recorded_ns),
        "recorder_ns": round(recorded_ns - bare_ns),
        "recorder_share": round((recorded_ns - bare_ns) / bare_ns, 3),
        "written": sum(count.written for count in counts),
        "dropped": sum(count.dropped for count in counts),
    }
    for name, value in figures.items():
        print(f"{name:<26} {value}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
