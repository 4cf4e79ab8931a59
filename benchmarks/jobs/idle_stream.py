"""Measure the rows per second of `aiowheel idle --stream`, and the least cost of a micro-batch.

Run:
    python -m benchmarks.jobs.idle_stream [--rows 4000000] [--files 8] [--json FILE]

The program creates Parquet files of packets, 20,000 connections, rows up to half a second out of
order, and lets the stream process them on `local[2]`, one file for each micro-batch. It reports the
first micro-batch, in which Java warms up, separately, and compares the result with that of
`lead()`. On a busy machine, the rows per second of CPU time, warm-up included, are more reliable.
"""

import argparse
import contextlib
import os
import tempfile
import time
from pathlib import Path

import psutil
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.cli._idle_file import summarize
from aiowheel.cli._idle_stream_report import StreamTally
from aiowheel.jobs.idle.batch import find_idle
from aiowheel.jobs.idle.stream import IdleStream, read_idle_events
from aiowheel.jobs.idle.touch_files import TouchFiles
from aiowheel.jobs.spark.checkpoint import Checkpoint
from aiowheel.jobs.spark.session import open_session
from aiowheel.jobs.spark.stream_run import StreamRun, Until
from aiowheel.readers import LATEST_TIME, TimeFormat, Unit
from aiowheel.readers._row_rules import RowRules
from benchmarks._named_figures import add_json_option, publish_figures

CORES = 2
CONNECTIONS = 20_000
TIMEOUT_US = 30_000_000
STEP_US = 500  # a packet of each connection every ten seconds
DISORDER_MS = 500
PROMISE = 40_000


def make_packets(spark: SparkSession, rows: int, files: int, folder: Path) -> None:
    """Write the files, with increasing modification times."""
    folder.mkdir()
    step = -(-rows // files)
    start = F.lit(1_700_000_000_000_000)
    early = F.pmod(F.hash("id"), F.lit(DISORDER_MS * 1_000))
    for number in range(files):
        part = folder.parent / "part"
        spark.range(number * step, min(rows, (number + 1) * step), 1, 1).select(
            F.concat(F.lit("c"), F.pmod(F.xxhash64("id"), F.lit(CONNECTIONS))).alias("key"),
            (start + F.col("id") * STEP_US - early).cast("bigint").alias("t"),
        ).write.mode("overwrite").parquet(str(part))
        (file,) = part.glob("*.parquet")
        target = folder / f"{number:04}.parquet"
        file.rename(target)
        os.utime(target, (1e9 + number, 1e9 + number))


def cpu_seconds() -> float:
    """Return the CPU time of this process, the JVM and its Python workers, warm-up included."""
    here = psutil.Process()
    total = 0.0
    for process in (here, *here.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def measure(rows: int, files: int) -> dict[str, object]:
    """Create the files, run the stream to its end, compare."""
    with (
        tempfile.TemporaryDirectory(prefix="aiowheel-bench-") as name,
        open_session("bench idle stream", master=f"local[{CORES}]") as spark,
    ):
        place = Path(name)
        make_packets(spark, rows, files, place / "in")
        stream = IdleStream(
            folder=place / "in",
            out=place / "out",
            checkpoint=Checkpoint(place / "checkpoint"),
            files=TouchFiles(
                RowRules("key", "t", TimeFormat.EPOCH, Unit.US),
                format=None,
                latest=None,
                limit=LATEST_TIME,
            ),
            timeout=TIMEOUT_US,
            max_lateness_ms=DISORDER_MS,
            files_per_batch=1,
        )
        tally = StreamTally(lambda *_: None)
        started, cpu_started = time.perf_counter(), cpu_seconds()
        StreamRun(stream, spark, tally.take).run(Until.DRAINED)
        seconds, cpu = time.perf_counter() - started, cpu_seconds() - cpu_started
        by_stream = summarize(read_idle_events(stream.events))
        table = spark.read.parquet(str(place / "in"))
        by_lead = summarize(find_idle(table, TIMEOUT_US, place / "found"))
    warm = tally.seconds[1:]
    rate = rows * len(warm) / files / sum(warm) / CORES
    return {
        "rows": tally.rows,
        "late": tally.late,
        "idle_events": by_stream.events,
        "equal_to_lead": by_stream == by_lead,
        "first_batch_seconds": tally.seconds[0],
        "batch_seconds": warm,
        "empty_batch_seconds": tally.empty_seconds,
        "all_seconds": round(seconds, 1),
        "rows_per_cpu_second": round(rows / cpu),
        "rows_per_second_and_core": round(rate),
        "promised": PROMISE,
        "kept": rate >= PROMISE,
    }


def main() -> None:
    """Measure, print a table, and write JSON if requested."""
    parser = argparse.ArgumentParser(description="Measure the rate of streaming idle detection.")
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--files", type=int, default=8)
    add_json_option(parser)
    arguments = parser.parse_args()
    publish_figures(lambda: measure(arguments.rows, arguments.files), arguments.json)


if __name__ == "__main__":
    main()
