"""Streams from Kafka to Delta Lake whose executors, workers or drivers are killed at random.

`make test-cluster` runs them, like those of `tests/jobs/test_kills.py`.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiowheel.rules import Ending
from tests.jobs import kills

from .test_streams import encoded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .conftest import Topics

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.realtime,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.spark_cluster,
    pytest.mark.timeout(3_600),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # PySpark 4.0's own
]


@pytest.mark.parametrize("victim", kills.Victim)
def test_idle_keys(
    victim: kills.Victim, spark: "SparkSession", topics: "Topics", tmp_path: Path
) -> None:
    """Every idle event is in the Delta table once."""
    name, out, checkpoint = f"{victim}-touches", tmp_path / "out", tmp_path / "checkpoint"
    command = ["idle", topics.make(name), *kills.IDLE, "--out", f"delta:{out}"]

    kills.run_with_kills(
        victim,
        [*command, "--checkpoint", str(checkpoint)],
        checkpoint,
        lambda part: topics.send(name, encoded(kills.touch_lines(kills.touches(part)))),
        tmp_path,
    )

    found = spark.read.format("delta").load(str(out)).select("fire", "key").collect()
    assert sorted(tuple(row) for row in found) == kills.expected_idle()


@pytest.mark.parametrize("victim", kills.Victim)
def test_operations(
    victim: kills.Victim, spark: "SparkSession", topics: "Topics", tmp_path: Path
) -> None:
    """Every outcome is in the Delta table once."""
    names = [f"{victim}-ops", f"{victim}-events"]
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"

    def feed(part: int) -> None:
        topics.send(names[0], encoded(kills.operation_lines(kills.operations(part))))
        topics.send(names[1], encoded(kills.event_lines(kills.events(part))))

    command = ["purgatory", *map(topics.make, names), *kills.PURGATORY, "--out", f"delta:{out}"]
    kills.run_with_kills(
        victim, [*command, "--checkpoint", str(checkpoint)], checkpoint, feed, tmp_path
    )

    found = spark.read.format("delta").load(f"{out}/outcomes").select(*Ending._fields).collect()
    assert sorted(Ending(*row) for row in found) == kills.expected_outcomes()
