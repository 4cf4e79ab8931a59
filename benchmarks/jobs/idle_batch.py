"""Measure `aiowheel idle --engine spark` beside the bare `lead()` query below it, and beside peers.

Run:
    python -m benchmarks.jobs.idle_batch [--rows 20000000] [--rounds 3] [--json FILE]

The program first creates a Parquet table of packets: 100,000 connections, each with a packet every
ten seconds on average. Then it runs, in one session and in turn: the bare query into Spark's sink
that discards its input; the complete job, with checked and counted rows, sorted events, and the
file of `fire,key` lines; and, where they are installed, DuckDB and polars, which write the same
sorted file without checks. It does so for two timeouts: after one, a packet in twenty is the last
before an idle event (30 s), after the other, one in three (10.8 s). It prints the times and the CPU
seconds of the process and its JVM, and the ratios of the job to the bare query.
"""

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.cli._idle_columns import write_idle_columns
from aiowheel.jobs.idle.batch import find_idle, tasks_for
from aiowheel.jobs.idle.parquet_touches import ParquetTouches
from aiowheel.jobs.spark.session import open_session
from aiowheel.readers import Inputs, TimedRows, TimeFormat, Unit, time_parser
from benchmarks._named_figures import add_json_option, publish_figures

CONNECTIONS = 100_000
MEAN_GAP_US = 10_000_000
SHARES = (0.05, 0.34)  # the fractions of the packets that an idle event follows
PROMISE = 1.3
SQL = """
    SELECT t + $timeout AS fire, key FROM (
        SELECT key, t, lead(t) OVER (PARTITION BY key ORDER BY t) AS next_t
        FROM read_parquet($files)
    ) WHERE next_t IS NULL OR next_t > t + $timeout ORDER BY fire, key
"""


def make_packets(spark: SparkSession, rows: int, folder: Path) -> None:
    """Write the table: a packet of a random connection at a fixed interval of microseconds."""
    step = MEAN_GAP_US // CONNECTIONS
    spark.range(rows).select(
        F.concat(F.lit("connection-"), F.pmod(F.xxhash64("id"), F.lit(CONNECTIONS))).alias("key"),
        (F.lit(1_700_000_000_000_000) + F.col("id") * step + F.rand(7) * 1_000)
        .cast("bigint")
        .alias("t"),
    ).write.option("compression", "zstd").parquet(str(folder))


def bare_query(rows: DataFrame, timeout: int) -> DataFrame:
    """Return the rule as a plain query: nothing is checked, counted, sorted or kept."""
    by_time = Window.partitionBy("key").orderBy("t")
    fire, next_t = F.col("t") + F.lit(timeout), F.col("next_t")
    return (
        rows.select("key", "t", F.lead("t").over(by_time).alias("next_t"))
        .where(next_t.isNull() | (next_t > fire))
        .select(fire.alias("fire"), "key")
    )


def run_job(spark: SparkSession, folder: Path, timeout: int) -> dict[str, int]:
    """Run the job as the command does; return its counts."""
    inputs = Inputs([str(folder)])
    rows = TimedRows(inputs, key="key", time="t", parse_time=time_parser(TimeFormat.EPOCH, Unit.US))
    with tempfile.TemporaryDirectory(prefix="aiowheel-bench-") as name:
        touches = ParquetTouches.of(spark, inputs.paths, "key", rows)
        tasks = tasks_for(touches.size, spark.sparkContext.defaultParallelism)
        found = find_idle(touches.rows, timeout, Path(name, "parts"), tasks)
        rows.take_over(touches.found(found))
        summary = write_idle_columns(found.batches(), Path(name, "idle.csv"))
        keys = found.count_keys()
    return {"rows": rows.accepted, "keys": keys, "idle_events": summary.events}


def run_duckdb(folder: Path, timeout: int, out: Path) -> None:
    """Write the file of the job with DuckDB."""
    duckdb = import_module("duckdb")
    given = {"timeout": timeout, "files": f"{folder}/*.parquet"}
    duckdb.sql(SQL, params=given).write_csv(str(out))


def run_polars(folder: Path, timeout: int, out: Path) -> None:
    """Write the file of the job with polars."""
    pl = import_module("polars")
    fire, next_t = pl.col("t") + timeout, pl.col("t").shift(-1).over("key")
    rows = pl.scan_parquet(f"{folder}/*.parquet").sort("key", "t")
    found = rows.filter(next_t.is_null() | (next_t > fire)).select(fire.alias("fire"), "key")
    found.sort("fire", "key").sink_csv(str(out))


PEERS = {"duckdb": run_duckdb, "polars": run_polars}


def cost_of(spark: SparkSession, work: Callable[[], object]) -> tuple[float, float]:
    """Return the duration of a call in seconds, and the CPU seconds of this process and the JVM."""
    gateway = spark.sparkContext._gateway  # noqa: SLF001 - only it has the JVM's process
    assert gateway is not None
    jvm = psutil.Process(gateway.proc.pid)

    def cpu_seconds() -> float:
        used = jvm.cpu_times()
        return time.process_time() + used.user + used.system

    started, cpu_started = time.perf_counter(), cpu_seconds()
    work()
    return time.perf_counter() - started, cpu_seconds() - cpu_started


def compare(spark: SparkSession, table: Path, share: float, rounds: int) -> dict[str, object]:
    """Run all in turn; the first round warms up and does not count."""
    timeout = round(-math.log(share) * MEAN_GAP_US)  # the gaps are exponential
    query = bare_query(spark.read.parquet(str(table)), timeout)
    found: dict[str, int] = {}
    works: dict[str, Callable[[], object]] = {
        "bare": query.write.format("noop").mode("overwrite").save,
        "job": lambda: found.update(run_job(spark, table, timeout)),
    }
    peers = [name for name in PEERS if find_spec(name)]
    files = {name: table.with_name(f"{name}.csv") for name in peers}
    works |= {name: partial(PEERS[name], table, timeout, files[name]) for name in peers}
    costs = [
        {name: cost_of(spark, work) for name, work in works.items()} for _ in range(rounds + 1)
    ][1:]
    for name, file in files.items():
        with file.open("rb") as lines:
            events = sum(1 for _ in lines) - 1  # the header
        assert events == found["idle_events"], (name, events)
    figures: dict[str, object] = dict(found)
    for place, kind in enumerate(("", "cpu_")):
        for name in works:
            figures[f"{name}_{kind}seconds"] = [round(cost[name][place], 2) for cost in costs]
        ratios = [cost["job"][place] / cost["bare"][place] for cost in costs]
        figures[f"{kind}ratio"] = round(statistics.median(ratios), 3)
    return figures | {"ratio_promised": PROMISE}


def measure(rows: int, rounds: int) -> dict[str, object]:
    """Create the table, and compare for both timeouts."""
    with (
        tempfile.TemporaryDirectory(prefix="aiowheel-bench-") as name,
        open_session("bench idle") as spark,
    ):
        table = Path(name, "packets")
        make_packets(spark, rows, table)
        return {f"share {share}": compare(spark, table, share, rounds) for share in SHARES}


def main() -> None:
    """Measure, print a table, and write JSON if requested."""
    parser = argparse.ArgumentParser(description="Measure batch idle beside its bare query.")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    add_json_option(parser)
    arguments = parser.parse_args()
    publish_figures(lambda: measure(arguments.rows, arguments.rounds), arguments.json)


if __name__ == "__main__":
    main()
