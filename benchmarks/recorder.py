"""Measure the cost of recording per operation, beside an awaited watch of a purgatory.

Run:
    python -m benchmarks.recorder [--operations 400000] [--rounds 5] [--json FILE]

The program prints nanoseconds of CPU time per operation for an awaited watch that an event
completes, for the same with a recorder, and for the recorder alone: those of the whole process,
the writer's thread included, and those of the event loop's thread. Rounds with and without the
recorder alternate, and the medians are compared. Then it records one long run, reads it back, and
prints the use of memory during the run.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiowheel import DelayedOperation, Purgatory, Timer, build_info
from aiowheel.trace import RecorderStatistics, TraceRecorder, read_trace_pandas
from benchmarks._memory import resident_bytes
from benchmarks._named_figures import add_json_option, publish_figures

WAITING = 1_000  # operations that are pending at the same time in a round
PERCENTS = (10, 25, 50, 75, 100)  # of the long run, after which memory is measured


class Arrival(DelayedOperation[None]):
    """An operation that completes once its flag is set."""

    arrived = False

    def try_complete(self) -> bool:
        """Check the flag."""
        return self.arrived and self.force_complete()

    def on_complete(self) -> None:
        """Return None."""


@dataclass(frozen=True)
class Round:
    """The CPU seconds of process and loop thread in one round, and the recorded rows."""

    cpu_seconds: float
    loop_seconds: float
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
    """Measure one round, including the closing of the recorder."""
    instruments = () if recorder is None else (recorder,)
    started, loop_started = time.process_time(), time.thread_time()
    async with Timer() as timer, Purgatory("bench", timer=timer, instruments=instruments) as room:
        await await_watches(room, operations)
    loop_seconds = time.thread_time() - loop_started
    if recorder is not None:
        await recorder.aclose()
    cpu_seconds = time.process_time() - started
    recorded = None if recorder is None else recorder.statistics()
    return Round(cpu_seconds, loop_seconds, recorded)


def measure(operations: int, rounds: int) -> tuple[list[Round], list[Round]]:
    """Measure rounds without and with a recorder, in turn."""
    bare: list[Round] = []
    recorded: list[Round] = []
    for _ in range(rounds):
        bare.append(asyncio.run(run_round(operations, None)))
        with tempfile.TemporaryDirectory(prefix="aiowheel-bench-") as folder:
            recorded.append(asyncio.run(run_round(operations, TraceRecorder(Path(folder)))))
    return bare, recorded


async def record_long(operations: int, folder: Path) -> dict[int, int]:
    """Record so many operations without a pause; return the resident bytes at several points."""
    sizes: dict[int, int] = {}
    async with (
        TraceRecorder(folder) as recorder,
        Timer() as timer,
        Purgatory("long", timer=timer, instruments=[recorder]) as room,
    ):
        done = 0
        for percent in PERCENTS:
            await await_watches(room, operations * percent // 100 - done)
            done = operations * percent // 100
            sizes[done] = resident_bytes()
    return sizes


def check_long(operations: int) -> dict[str, float]:
    """Record a long run and read it back: check for every operation and for flat memory."""
    with tempfile.TemporaryDirectory(prefix="aiowheel-bench-") as name:
        folder = Path(name)
        sizes = asyncio.run(record_long(operations, folder))
        frame = read_trace_pandas(folder, columns=["operation_id"])
        file_bytes = sum(file.stat().st_size for file in folder.iterdir())
    ids = [int(number) for number in frame["operation_id"]]
    return {
        "long_recorded": len(ids),
        "long_missing": len(set(range(operations)) - set(ids)),
        "long_doubled": len(ids) - len(set(ids)),
        **{f"long_mb_at_{done}": round(size / 1e6, 1) for done, size in sizes.items()},
        "long_bytes_a_row": round(file_bytes / len(ids), 1),
    }


def median_ns(seconds: Iterable[float], operations: int) -> float:
    """Return the median time per operation."""
    return statistics.median(seconds) / operations * 1e9


def compare(bare: Sequence[Round], recorded: Sequence[Round], operations: int) -> dict[str, float]:
    """Return the figures of the rounds."""
    bare_ns = median_ns((one.cpu_seconds for one in bare), operations)
    recorded_ns = median_ns((one.cpu_seconds for one in recorded), operations)
    loop_ns = median_ns((one.loop_seconds for one in recorded), operations)
    loop_ns -= median_ns((one.loop_seconds for one in bare), operations)
    counts = [one.recorded for one in recorded if one.recorded is not None]
    return {
        "awaited_watch_ns": round(bare_ns),
        "awaited_watch_recorded_ns": round(recorded_ns),
        "recorder_ns": round(recorded_ns - bare_ns),
        "recorder_on_the_loop_ns": round(loop_ns),
        "recorder_share": round((recorded_ns - bare_ns) / bare_ns, 3),
        "written": sum(count.written for count in counts),
        "dropped": sum(count.dropped for count in counts),
    }


def figures_of(operations: int, rounds: int, long: int) -> dict[str, object]:
    """Measure the rounds and the long run."""
    bare, recorded = measure(operations, rounds)
    return {
        "build": "compiled" if build_info().accelerated else "pure",
        "operations": operations,
        "rounds": rounds,
        **compare(bare, recorded, operations),
        **check_long(long),
    }


def main() -> None:
    """Measure, print a table, and write JSON if requested."""
    parser = argparse.ArgumentParser(description="Measure what recording costs.")
    parser.add_argument("--operations", type=int, default=400_000, help="per round")
    parser.add_argument("--rounds", type=int, default=5, help="with and without, each")
    parser.add_argument("--long", type=int, default=1_000_000, help="operations of the long run")
    add_json_option(parser)
    arguments = parser.parse_args()
    publish_figures(
        lambda: figures_of(arguments.operations, arguments.rounds, arguments.long), arguments.json
    )


if __name__ == "__main__":
    main()
