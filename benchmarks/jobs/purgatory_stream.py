"""Measure the rows per second of `aiowheel purgatory --stream`, and the cost of a micro-batch.

Run:
    python -m benchmarks.jobs.purgatory_stream [--rows 600000] [--files 6] [--json FILE]

The program creates Parquet files of a trace. One row in four is an operation on two of 10,000 keys,
some of them busy, with thresholds, any or all, and a timeout of five seconds; the other three are
events. Rows are up to half a second out of order. One file of each folder makes a micro-batch on
`local[2]`, with 16 shards. Four further files come first and warm Java up; they are not among the
rows. Then the clocks start, the files arrive, and the clocks stop when all of them are processed:
neither start nor end of a session is measured. Last come files of one row, after all operations are
over, which show the cost of an empty micro-batch.

The outcomes are compared with those of one process. On a busy machine, the rows per second of CPU
time are more reliable: the CPU time of this process, of Java and of the Python workers.
"""

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
from pyspark.sql.streaming.query import StreamingQuery

from aiowheel.jobs.operations.files import write_events, write_operations
from aiowheel.jobs.operations.shard import Shard
from aiowheel.jobs.operations.stream import PurgatoryStream
from aiowheel.jobs.spark.checkpoint import Checkpoint
from aiowheel.jobs.spark.session import open_session
from aiowheel.jobs.spark.stream_run import Phase, StreamRun, Until
from aiowheel.readers import Unit
from aiowheel.rules import NEVER, Ending, Event, Operation
from benchmarks._named_figures import add_json_option, publish_figures

CORES = 2
SHARDS = 16
KINDS = ("operations", "events")
KEYS = 10_000
STEP_US = 250  # microseconds from row to row; an operation every millisecond
TIMEOUT_US = 5_000_000
DISORDER_US = 500_000
TICK_US = 1_000
WARM_UP_FILES = 4
EMPTY_FILES = 5
PROMISE = 10_000

Trace = tuple[list[Operation], list[Event]]


def make_trace(rows: int, first: int, source: random.Random) -> Trace:
    """Return the rows from number *first* on, in the order of their arrival."""
    operations: list[Operation] = []
    events: list[Event] = []
    for number in range(first, first + rows):
        time_us = DISORDER_US + number * STEP_US - source.randrange(DISORDER_US)
        if number % 4:
            events.append(Event(busy_key(source), time_us, source.randrange(10)))
            continue
        keys = tuple({busy_key(source), busy_key(source)})
        least = tuple(source.randrange(10) for _ in keys)
        wanted = source.choice((1, len(keys)))
        deadline = time_us + TIMEOUT_US
        operations.append(Operation(f"operation-{number}", keys, least, wanted, time_us, deadline))
    return operations, events


def busy_key(source: random.Random) -> str:
    """Return a key; the first ones are drawn more often."""
    return f"key-{int(KEYS * source.random() ** 3)}"


def write_files(trace: Trace, number: int, folder: Path) -> None:
    """Write a file of each kind, hidden; a lower number gives an older modification time."""
    write_operations(_hidden(folder / "operations", number), trace[0])
    write_events(_hidden(folder / "events", number), trace[1])
    for kind in KINDS:
        os.utime(_hidden(folder / kind, number), (1e9 + number, 1e9 + number))


def let_arrive(numbers: Iterable[int], folder: Path) -> None:
    """Move files to where the stream finds them."""
    for number in numbers:
        for kind in KINDS:
            _hidden(folder / kind, number).rename(folder / kind / f"{number:04}.parquet")


def _hidden(folder: Path, number: int) -> Path:
    return folder / f".{number:04}.parquet"


def cpu_seconds() -> dict[str, float]:
    """Return the CPU time so far of this process, of Java, and of the Python workers."""
    here = psutil.Process()
    spent = {"driver": sum(here.cpu_times()[:2]), "java": 0.0, "workers": 0.0}
    for process in here.children(recursive=True):
        kind = "java" if process.name() == "java" else "workers"
        # The daemon, their parent, has the times of workers that have ended.
        spent[kind] += sum(process.cpu_times()[: 2 if kind == "java" else 4])
    return spent


def batches(stream: PurgatoryStream, query: StreamingQuery) -> Iterator[tuple[int, float]]:
    """Yield the read rows and the seconds of every micro-batch."""
    for batch in query.recentProgress:
        if "addBatch" in batch.durationMs:
            counts = stream.checked_counts(batch)
            yield counts.operations + counts.events, batch.durationMs["triggerExecution"] / 1_000


def measure(rows: int, files: int) -> dict[str, object]:
    """Run the stream over arriving files, and compare."""
    source = random.Random(5)
    step = rows // files
    traces = [make_trace(step, number * step, source) for number in range(WARM_UP_FILES + files)]
    with (
        tempfile.TemporaryDirectory(prefix="aiowheel-bench-") as name,
        open_session("bench purgatory stream", master=f"local[{CORES}]") as spark,
    ):
        place = Path(name)
        for kind in KINDS:
            (place / kind).mkdir()
        for number, trace in enumerate(traces):
            write_files(trace, number, place)
        stream = PurgatoryStream(
            operations=place / "operations",
            events=place / "events",
            out=place / "out",
            checkpoint=Checkpoint(place / "checkpoint"),
            unit=Unit.US,
            tick=TICK_US,
            max_lateness_ms=DISORDER_US // 1_000,
            shards=SHARDS,
            files_per_batch=1,
        )
        let_arrive(range(WARM_UP_FILES), place)
        stream.checkpoint.open(stream.settings)
        query = stream.start(spark, Phase.FOLLOW)
        query.processAllAvailable()
        warm = len(list(batches(stream, query)))

        started, spent = time.perf_counter(), cpu_seconds()
        let_arrive(range(WARM_UP_FILES, len(traces)), place)
        query.processAllAvailable()
        seconds = time.perf_counter() - started
        cpu = {kind: total - spent[kind] for kind, total in cpu_seconds().items()}

        done = list(batches(stream, query))
        for count in range(EMPTY_FILES + 1):
            traces.append(overdue(count, rows))
            write_files(traces[-1], len(traces), place)
            let_arrive([len(traces)], place)
            query.processAllAvailable()
        empty = [taken for _, taken in batches(stream, query)][-EMPTY_FILES:]
        query.stop()
        StreamRun(stream, spark).run(Until.DRAINED)
        found = spark.read.parquet(str(place / "out" / "outcomes")).select(*Ending._fields)
        outcomes = sorted(Ending(*row) for row in found.collect())
    rate = files * step / seconds / CORES
    return {
        "rows": files * step,
        "outcomes": len(outcomes),
        "equal_to_one_process": outcomes == replay(traces),
        "warm_up_batch_seconds": [taken for _, taken in done[:warm]],
        "batch_seconds": [taken for read, taken in done[warm:] if read],
        "empty_batch_seconds": statistics.median(empty),
        "seconds": round(seconds, 2),
        **{f"cpu_seconds_{kind}": round(total, 2) for kind, total in cpu.items()},
        "rows_per_cpu_second": round(files * step / sum(cpu.values())),
        "rows_per_second_and_core": round(rate),
        "promised": PROMISE,
        "kept": rate >= PROMISE,
    }


def overdue(number: int, after: int) -> Trace:
    """Return an operation that is over at once, and an event without watchers, after many rows."""
    time_us = 10 * after * STEP_US + number * TIMEOUT_US
    operation = Operation(f"overdue-{number}", ("nobody's",), (0,), 1, time_us, time_us)
    return [operation], [Event("nobody's", time_us, 0)]


def replay(traces: list[Trace]) -> list[Ending]:
    """Return the outcomes of one process."""
    shard = Shard(TICK_US)
    for trace in traces:
        shard.feed(*trace)
    return sorted(shard.settle(NEVER - 1))


def main() -> None:
    """Measure, print a table, and write JSON if requested."""
    parser = argparse.ArgumentParser(description="Measure the rate of the streaming purgatory.")
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--files", type=int, default=6)
    add_json_option(parser)
    arguments = parser.parse_args()
    publish_figures(lambda: measure(arguments.rows, arguments.files), arguments.json)


if __name__ == "__main__":
    main()
