"""Millions of rows through a Kafka that is killed meanwhile give the wheel engine's result.

`make test-kafka` sends 5,000,000 touches, and as many operations and events together; `make
test-kafka ROWS=200000` is quicker. The rates are printed.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aiowheel.jobs.schemas import OUTCOMES
from tests.jobs.test_cluster import finish, start, wait_until

from .test_streams import report_of
from .test_targets import records_frame

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from .broker import Broker
    from .conftest import Topics

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.realtime,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(7_200),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # PySpark 4.0's own
]

ROWS = int(os.environ.get("AIOWHEEL_KAFKA_ROWS", "5000000"))
BATCHES = 6
KEYS = 10_000
PARTITIONS = 4
PATIENCE = 3_600.0
STREAM = ["--stream", "--drain", "--unit", "ms", "--max-lateness", "60", "--json"]


def drawn(name: str, below: int) -> "Column":
    """Return a pseudo-random number that is the same in every run."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.pmod(F.xxhash64(F.lit(name), "id"), F.lit(below))


def run_and_kill(
    command: list[str], broker: "Broker", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """Run a stream; kill and restart the broker meanwhile; return the report."""
    checkpoint = tmp_path / "checkpoint"
    process = start([*command, "--checkpoint", str(checkpoint), "--master", "local[2]"], tmp_path)
    commits = checkpoint / "commits"
    wait_until((commits / str(BATCHES // 2 - 1)).exists, process, PATIENCE)
    assert not (commits / str(BATCHES - 1)).exists(), "all rows were read before the kill"
    broker.kill()
    broker.start()
    report = finish(process, PATIENCE)
    assert (report["ended"], report["late"], report["rejected"]) == ("drained", 0, 0)
    with capsys.disabled():
        rate = f"{report['rows']:,} rows, {report['rows_per_second']:,} a second"
        sys.stdout.write(f"\n{command[0]} through Kafka: {rate}\n")
    return report


def test_touches(
    spark: "SparkSession",
    broker: "Broker",
    topics: "Topics",
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """From a topic to Parquet, the digest of the events equals that of one process."""
    from pyspark.sql import functions as F  # noqa: N812

    from aiowheel.jobs.spark.targets import write_rows

    # One touch per millisecond, half a second out of order; one task keeps the order in the topic.
    rows = spark.range(ROWS, numPartitions=1).select(
        F.concat(F.lit("key-"), drawn("key", KEYS)).alias("key"),
        (F.col("id") + drawn("t", 500)).alias("t"),
    )
    rows.write.parquet(str(tmp_path / "touches"))
    uri = topics.make("volume-touches", PARTITIONS)
    write_rows(rows, uri, key=["key"])
    timeout = ["--timeout", "20"]

    command = ["idle", uri, *STREAM, *timeout, "--out", str(tmp_path / "out")]
    command += ["--records-per-batch", str(ROWS // BATCHES)]
    report = run_and_kill(command, broker, tmp_path, capsys)

    files = [str(tmp_path / "touches"), "--key", "key", "--time", "t", "--unit", "ms"]
    one = report_of(["idle", *files, *timeout, "--out", str(tmp_path / "idle.csv")], capsys)
    assert report["rows"] == one["rows"] == ROWS
    assert one["idle_events"] > 0
    assert (report["total_events"], report["sha256"]) == (one["idle_events"], one["sha256"])


def test_operations(
    spark: "SparkSession",
    broker: "Broker",
    topics: "Topics",
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The distinct records of the output topic equal the outcomes of one process."""
    from pyspark.sql import functions as F  # noqa: N812

    from aiowheel.jobs.spark.targets import write_rows
    from aiowheel.jobs.spark.values import ddl

    numbers = spark.range(ROWS // 2, numPartitions=1)
    created = F.col("id") + drawn("created", 500)
    tables = {
        "ops": numbers.select(
            F.concat(F.lit("operation-"), "id").alias("id"),
            F.array(
                F.concat(F.lit("a"), drawn("a", KEYS)), F.concat(F.lit("b"), drawn("b", KEYS))
            ).alias("keys"),
            F.array(drawn("least", 5), F.lit(None)).alias("thresholds"),
            F.when(drawn("mode", 4) == 0, "all").otherwise("any").alias("mode"),
            created.alias("created"),
            (created + 10_000).alias("deadline"),
        ),
        "events": numbers.select(
            F.concat(
                F.when(drawn("family", 2) == 0, "a").otherwise("b"), drawn("event", KEYS)
            ).alias("key"),
            (F.col("id") + drawn("time", 500)).alias("time"),
            drawn("value", 10).alias("value"),
        ),
    }
    uris: list[str] = []
    for name, table in tables.items():
        table.write.parquet(str(tmp_path / name))
        uris.append(topics.make(f"volume-{name}", PARTITIONS))
        write_rows(table, uris[-1], key=table.columns[:1])
    out = topics.make("volume-found.outcomes", PARTITIONS).removesuffix(".outcomes")

    command = ["purgatory", *uris, *STREAM, "--tick", "10", "--out", out]
    command += ["--records-per-batch", str(ROWS // 2 // BATCHES)]
    report = run_and_kill(command, broker, tmp_path, capsys)

    folders = [str(tmp_path / name) for name in tables]
    one = ["purgatory", *folders, "--unit", "ms", "--tick", "10", "--out", str(tmp_path / "one")]
    counts = report_of(one, capsys)
    assert report["rows"] == counts["operations"] + counts["events"] == ROWS // 2 * 2
    assert report["outcomes"] == counts["completed"] + counts["expired"] == ROWS // 2
    assert min(counts["completed"], counts["expired"]) > 0
    wanted = spark.read.parquet(str(tmp_path / "one" / "outcomes")).select(*OUTCOMES.names)
    records = records_frame(spark, f"{out}.outcomes").distinct()  # a repetition has the same key
    found = records.select(F.from_json("value", ddl(OUTCOMES)).alias("row")).select("row.*")
    assert found.exceptAll(wanted).isEmpty()
    assert wanted.exceptAll(found).isEmpty()
