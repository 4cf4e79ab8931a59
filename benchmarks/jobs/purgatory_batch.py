"""Compare the time of `aiowheel purgatory --engine spark` with that of a bare join.

Run:
    python -m benchmarks.jobs.purgatory_batch [--operations 4000000] [--skewed] [--json FILE]

The program first creates a trace: operations on any of two of 100,000 keys, with thresholds and a
timeout of five seconds, and three times as many events; with ``--skewed`` most events are on few
keys, where the bare join becomes slow. Then it runs, in one session and in turn: the bare join, in
bins of six seconds with integers for keys and ids, into Spark's sink that discards its input; and
the complete job, on strings, with checked and counted rows and written outcomes. It prints the
times and their ratio; both must have completed the same operations at the same times.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.jobs.operations.batch import run_purgatory
from aiowheel.jobs.spark.session import open_session
from aiowheel.rules import COMPLETED
from benchmarks._named_figures import add_json_option, publish_figures

KEYS = 100_000
EVENTS_AN_OPERATION = 3
STEP_US = 50  # microseconds from one operation to the next
TIMEOUT_US = 5_000_000
TICK_US = 1_000
BIN_US = 6_000_000
LEVELS = 100  # the number of different values and thresholds
PROMISE = 2.0


def make_trace(spark: SparkSession, operations: int, folder: Path, *, skewed: bool) -> None:
    """Write the operations and events in the format of the job and in that of the bare join."""

    def number(seed: int, below: int, power: int = 1) -> Column:
        return F.floor(F.pow(F.rand(seed), power) * below).cast("bigint")

    power = 3 if skewed else 1
    rows = spark.range(operations, numPartitions=4)
    rows.select(
        F.col("id").alias("number"),
        F.array_distinct(F.array(number(1, KEYS, 3), number(2, KEYS, 3))).alias("watched"),
        number(3, LEVELS).alias("least"),
        (F.col("id") * STEP_US + number(4, STEP_US)).alias("created"),
    ).write.parquet(str(folder / "drawn"))
    drawn = spark.read.parquet(str(folder / "drawn"))
    drawn.select(
        F.concat(F.lit("operation-"), "number").alias("id"),
        F.transform("watched", _key).alias("keys"),
        F.transform("watched", lambda _: F.col("least")).alias("thresholds"),
        F.lit("any").alias("mode"),
        "created",
        (F.col("created") + TIMEOUT_US).alias("deadline"),
    ).write.parquet(str(folder / "operations"))
    drawn.select("number", F.explode("watched").alias("key"), "least", "created").write.parquet(
        str(folder / "bare_operations")
    )
    step = STEP_US / EVENTS_AN_OPERATION
    spark.range(operations * EVENTS_AN_OPERATION, numPartitions=4).select(
        number(5, KEYS, power).alias("key"),
        (F.col("id") * step + number(6, STEP_US)).cast("bigint").alias("time"),
        number(7, LEVELS).alias("value"),
    ).write.parquet(str(folder / "bare_events"))
    spark.read.parquet(str(folder / "bare_events")).withColumn(
        "key", _key(F.col("key"))
    ).write.parquet(str(folder / "events"))


def _key(number: Column) -> Column:
    return F.concat(F.lit("key-"), number.cast("string"))


def bare_join(spark: SparkSession, folder: Path) -> DataFrame:
    """Return number and time of every completed operation, by one join on key and bin."""

    def bin_of(moment: Column) -> Column:
        return F.call_function("div", moment, F.lit(BIN_US))

    deadline = F.col("created") + TIMEOUT_US
    expiry = deadline + F.pmod(-deadline, F.lit(TICK_US))
    watched = spark.read.parquet(str(folder / "bare_operations")).withColumn("expiry", expiry)
    bins = F.sequence(bin_of(F.col("created")), bin_of(F.col("expiry") - 1))
    events = spark.read.parquet(str(folder / "bare_events"))
    happened = events.withColumn("bin", bin_of(F.col("time")))
    in_time = (F.col("time") >= F.col("created")) & (F.col("time") < F.col("expiry"))
    return (
        watched.withColumn("bin", F.explode(bins))
        .join(happened, ["key", "bin"])
        .where(in_time & (F.col("value") >= F.col("least")))
        .groupBy("number")
        .agg(F.min("time").alias("time"))
    )


def seconds_of(work: Callable[[], object]) -> float:
    """Return the duration of a call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure(operations: int, rounds: int, *, skewed: bool) -> dict[str, object]:
    """Run all rounds in one session; the first includes the start of the session, on both sides."""
    bare: list[float] = []
    job: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="aiowheel-bench-") as name,
        open_session("bench purgatory batch") as spark,
    ):
        folder = Path(name)
        make_trace(spark, operations, folder, skewed=skewed)
        joined = bare_join(spark, folder)

        def run_job() -> None:
            operations_in, events_in = folder / "operations", folder / "events"
            run_purgatory(spark, operations_in, events_in, folder / "out", TICK_US, None)

        for _ in range(rounds):
            bare.append(seconds_of(joined.write.format("noop").mode("overwrite").save))
            job.append(seconds_of(run_job))
        total = F.count("*").alias("completed"), F.sum("time").alias("times")
        outcomes = spark.read.parquet(str(folder / "out" / "outcomes"))
        ours = outcomes.where(F.col("outcome") == COMPLETED).withColumnRenamed("at", "time")
        found, expected = ours.agg(*total).first(), joined.agg(*total).first()
    if found is None or found != expected:
        raise SystemExit(f"the job found {found}, the bare join {expected}")
    ratio = statistics.median(one / other for one, other in zip(job, bare, strict=True))
    return {
        "operations": operations,
        "events": operations * EVENTS_AN_OPERATION,
        "skewed": skewed,
        "completed": found["completed"],
        "bare_seconds": [round(seconds, 1) for seconds in bare],
        "job_seconds": [round(seconds, 1) for seconds in job],
        "ratio": round(ratio, 2),
        "ratio_promised": PROMISE,
        "kept": ratio <= PROMISE,
    }


def main() -> None:
    """Measure, print a table, and write JSON if requested."""
    parser = argparse.ArgumentParser(description="Measure batch purgatory beside a bare join.")
    parser.add_argument("--operations", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--skewed", action="store_true", help="most events on few keys")
    add_json_option(parser)
    arguments = parser.parse_args()
    publish_figures(
        lambda: measure(arguments.operations, arguments.rounds, skewed=arguments.skewed),
        arguments.json,
    )


if __name__ == "__main__":
    main()
