"""What `aiowheel idle --engine spark` adds to the bare `lead()` query it is built on.

Run:
    python benchmarks/bench_idle_batch.py [--rows 20000000] [--rounds 3] [--json FILE]

Makes a Parquet table of packets once: 100,000 connections, each with a packet every ten seconds on
average, so that one gap in twenty is longer than the timeout of 30 s. Then, in one session and in
turn: the bare query into Spark's sink that keeps nothing; and the whole job, with rows checked and
counted, events sorted, and the file of `fire,key` lines written. Prints the times and their ratio.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.cli._idle_columns import write_idle_columns
from aiowheel.jobs.idle.batch import find_idle, tasks_for
from aiowheel.jobs.idle.parquet_touches import ParquetTouches
from aiowheel.jobs.spark.session import open_session
from aiowheel.readers import Inputs, TimedRows, TimeFormat, Unit, time_parser

CONNECTIONS = 100_000
TIMEOUT_US = 30_000_000
MEAN_GAP_US = 10_000_000
PROMISE = 1.3


def make_packets(spark: SparkSession, rows: int, folder: Path) -> None:
    """Write the table: a packet of a random connection every so many microseconds."""
    step = MEAN_GAP_US // CONNECTIONS
    spark.range(rows).select(
        F.concat(F.lit("connection-"), F.pmod(F.xxhash64("id"), F.lit(CONNECTIONS))).alias("key"),
        (F.lit(1_700_000_000_000_000) + F.col("id") * step + F.rand(7) * 1_000)
        .cast("bigint")
        .alias("t"),
    ).write.option("compression", "zstd").parquet(str(folder))


def seconds_of(work: Callable[[], object]) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def run_job(spark: SparkSession, folder: Path) -> dict[str, int]:
    """The job as the command runs it; what it found."""
    inputs = Inputs([str(folder)])
    rows = TimedRows(inputs, key="key", time="t", parse_time=time_parser(TimeFormat.EPOCH, Unit.US))
    with tempfile.TemporaryDirectory(prefix="aiowheel-bench-") as name:
        touches = ParquetTouches.of(spark, inputs.paths, rows)
        found = find_idle(touches.good(), TIMEOUT_US, Path(name))
        rows.take_over(touches.sizes, touches.rejects())
        summary = write_idle_events(found, Path(name, "idle.csv"))
    return {"rows": rows.accepted, "keys": found.keys, "idle_events": summary.events}


def measure(rows: int, rounds: int) -> dict[str, object]:
    """All rounds in one session; the first is for warming up and does not count."""
    bare: list[float] = []
    job: list[float] = []
    found: dict[str, int] = {}
    with (
        tempfile.TemporaryDirectory(prefix="aiowheel-bench-") as name,
        open_session("bench idle") as spark,
    ):
        table = Path(name, "packets")
        make_packets(spark, rows, table)
        query = idle_events(spark.read.parquet(str(table)), TIMEOUT_US)
        for _ in range(rounds + 1):
            bare.append(seconds_of(query.write.format("noop").mode("overwrite").save))
            job.append(seconds_of(lambda: found.update(run_job(spark, table))))
    ratios = [with_all / alone for with_all, alone in zip(job[1:], bare[1:], strict=True)]
    return {
        **found,
        "bare_seconds": [round(seconds, 2) for seconds in bare[1:]],
        "job_seconds": [round(seconds, 2) for seconds in job[1:]],
        "bare_rows_per_second": round(rows / statistics.median(bare[1:])),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_promised": PROMISE,
        "kept": statistics.median(ratios) <= PROMISE,
    }


def main() -> None:
    """Measure, print a table, write JSON where asked for."""
    parser = argparse.ArgumentParser(description="Measure batch idle beside its bare query.")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    figures = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        **measure(arguments.rows, arguments.rounds),
        "load_after": round(os.getloadavg()[0], 2),
    }
    for name, value in figures.items():
        print(f"{name:<22} {value}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
