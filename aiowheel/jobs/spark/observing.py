"""Numbers of rows that a stream observes, exact although Spark repeats tasks. Rank 5.

Spark adds up what the tasks of a micro-batch observe. It repeats a task whose output was lost with
an executor, and then adds its numbers once more. So each pack and each shard states its number in
one row, which a repeated task states again, and the observation is the *set* of these rows.
`progress` adds them up.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.jobs.spark.progress import TAKEN, packs_of_table


def observe_packs(packs: DataFrame, table: str) -> DataFrame:
    """Observe the numbers of rows in the packs of a table, before late ones are dropped.

    Args:
        packs: Packs with their ``count`` and ``number``.
        table: One of `progress.TABLES`.
    """
    tasks = packs.withColumn("task", F.spark_partition_id())
    counts = F.collect_set(F.struct("task", "number", "count")).alias("packs")
    return tasks.observe(packs_of_table(table), counts).drop("task")


def observe_taken(output: DataFrame, is_report: Column, *counts: str) -> DataFrame:
    """Observe the numbers of rows that the shards have taken.

    Args:
        output: The output of `by_shard`, with the columns ``shard`` and *counts*.
        is_report: Whether a row states the counts of its shard; there is one in a micro-batch.
        counts: The names of the counts.
    """
    report = F.when(is_report, F.struct("shard", *counts))
    return output.observe(TAKEN, F.collect_set(report).alias("shards"))
