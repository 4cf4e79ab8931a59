"""The transforms on a session of Spark Connect, in a separate process."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed")

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("needs_spark"),
]

ROOT = Path(__file__).parents[3]
CODE = """
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from aiowheel.errors import AiowheelError
from aiowheel.jobs import idle_events, settle_operations

folder = Path("rows")
rocks = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
spark = (
    SparkSession.builder.remote("local[2]")
    .config("spark.sql.streaming.stateStore.providerClass", rocks)
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
touches = spark.createDataFrame([("a", 1), ("a", 20), ("b", 5)], "key string, t bigint")
idle = idle_events(touches, key="key", time="t", timeout=10)
print("idle", sorted(tuple(row) for row in idle.select("fire", "key").collect()))

operations = spark.createDataFrame(
    [("x", ["k"], 100, 500), ("y", ["l"], 100, 500), ("end", ["z"], 10**9, None)],
    "id string, keys array<string>, created bigint, deadline bigint",
)
events = spark.createDataFrame([("k", 200), ("none", 10**9)], "key string, time bigint")
ends = settle_operations(operations, events)
print("batch", sorted(tuple(row) for row in ends.outcomes.collect()))

operations.write.parquet(str(folder / "ops"))
events.write.parquet(str(folder / "events"))
streams = [
    spark.readStream.schema(table.schema).parquet(str(folder / name))
    for name, table in (("ops", operations), ("events", events))
]
try:
    ends = settle_operations(*streams, unit="ms", watermark=timedelta(0), shards=2)
except AiowheelError as error:
    print("stream", error)
else:
    query = (
        ends.outcomes.writeStream.format("parquet")
        .option("checkpointLocation", "checkpoint")
        .trigger(availableNow=True)
        .start("found")
    )
    query.awaitTermination()
    print("stream", sorted(tuple(row) for row in spark.read.parquet("found").collect()))
"""


def test_transforms_over_spark_connect(tmp_path: Path) -> None:
    """The results are the same as elsewhere; PySpark 4.0 refuses streams of operations."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3_000:]
    ends = [("x", "completed", "k", 200), ("y", "expired", None, 500)]
    lines = [line for line in done.stdout.splitlines() if line.partition(" ")[0] in RESULTS]
    assert lines == [
        "idle [(11, 'a'), (15, 'b'), (30, 'a')]",
        f"batch {ends}",
        f"stream {REFUSED if metadata.version('pyspark').startswith('4.0.') else ends}",
    ]


RESULTS = {"idle", "batch", "stream"}
REFUSED = (
    "PySpark of this version has no transformWithState over Spark Connect: streams of operations "
    "need a session with a driver"
)
