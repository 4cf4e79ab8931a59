"""The counts of a micro-batch, from Spark's report."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import Row, SparkSession

from aiowheel.jobs.spark.progress import batch_counts, taken_rows

pytestmark = pytest.mark.one_build


def progress(**observed: Any) -> Any:
    """Return a report with observed numbers."""
    return SimpleNamespace(observedMetrics=observed)


def test_rows_are_packed_or_rejected_and_taken_or_late() -> None:
    """The rows of packs that no shard has taken are late."""
    batch = progress(
        operations=Row(rejected=1),
        events=Row(rejected=2),
        operations_packed=Row(packs=[Row(task=0, number=0, count=4)]),
        events_packed=Row(packs=[Row(task=1, number=0, count=7), Row(task=1, number=1, count=7)]),
        taken=Row(shards=[Row(shard=3, taken_operations=4, taken_events=12)]),
    )

    assert batch_counts(batch) == (21, 3, 2)
    assert taken_rows(batch) == {"taken_operations": 4, "taken_events": 12}


def test_a_report_from_json_has_dictionaries() -> None:
    """Spark Connect transfers reports as JSON."""
    batch = progress(
        touches={"rejected": 0},
        touches_packed={"packs": [{"task": 0, "number": 0, "count": 4}]},
        taken={"shards": [{"shard": 3, "taken": 3}]},
    )

    assert batch_counts(batch) == (4, 0, 1)


def test_a_batch_without_rows_has_empty_sets() -> None:
    """Spark reports null for what no task has observed."""
    batch = progress(touches=None, touches_packed=None, taken=Row(shards=None))

    assert batch_counts(batch) == (0, 0, 0)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.usefixtures("needs_spark")
def test_rows_of_a_repeated_task_count_once(spark: SparkSession) -> None:
    """Spark adds what tasks observe each time that they run, here in two actions on one frame."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

    rows = spark.range(6, numPartitions=2).select(
        F.spark_partition_id().alias("task"), F.col("id").alias("number"), F.lit(5).alias("count")
    )
    # A union with itself has the rows of each task twice, as if it had been repeated.
    seen = Observation()
    rows.union(rows).observe(
        seen, F.collect_set(F.struct("task", "number", "count")).alias("packs")
    ).collect()

    batch = progress(touches_packed=Row(**seen.get), taken=None)
    assert batch_counts(batch).rows == 3 * 2 * 5
