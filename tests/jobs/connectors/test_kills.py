"""Streams from Kafka to Delta Lake that lose executors, workers or drivers at random moments.

`make test-cluster` runs them, like those of `tests/jobs/test_kills.py`.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiowheel.rules import Ending
from tests.jobs.kills import (
    IDLE,
    PURGATORY,
    Victim,
    endure,
    event_lines,
    events,
    operation_lines,
    operations,
    touch_lines,
    touches,
    undisturbed_idle,
    undisturbed_outcomes,
)

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


def sent(topics: "Topics", name: str, lines: list[str]) -> None:
    """Send records."""
    topics.send(name, [line.encode() for line in lines])


@pytest.mark.parametrize("victim", Victim)
def test_idle_keys(victim: Victim, spark: "SparkSession", topics: "Topics", tmp_path: Path) -> None:
    """From a topic to a Delta table."""
    name, out, checkpoint = f"{victim}-touches", tmp_path / "out", tmp_path / "checkpoint"
    command = ["idle", topics.make(name), *IDLE, "--out", f"delta:{out}"]

    endure(
        victim,
        [*command, "--checkpoint", str(checkpoint)],
        checkpoint,
        lambda part: sent(topics, name, touch_lines(touches(part))),
        tmp_path,
    )

    found = spark.read.format("delta").load(str(out)).select("fire", "key").collect()
    assert sorted(tuple(row) for row in found) == undisturbed_idle()


@pytest.mark.parametrize("victim", Victim)
def test_operations(
    victim: Victim, spark: "SparkSession", topics: "Topics", tmp_path: Path
) -> None:
    """From two topics to a Delta table."""
    names = [f"{victim}-ops", f"{victim}-events"]
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"

    def feed(part: int) -> None:
        sent(topics, names[0], operation_lines(operations(part)))
        sent(topics, names[1], event_lines(events(part)))

    command = ["purgatory", *map(topics.make, names), *PURGATORY, "--out", f"delta:{out}"]
    endure(victim, [*command, "--checkpoint", str(checkpoint)], checkpoint, feed, tmp_path)

    found = spark.read.format("delta").load(f"{out}/outcomes").select(*Ending._fields).collect()
    assert sorted(Ending(*row) for row in found) == undisturbed_outcomes()
