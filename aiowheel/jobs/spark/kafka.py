"""Rows as records of a Kafka topic. Rank 5.

A repeated micro-batch is sent again: delivery is at least once. The key of a record identifies its
row, so that consumers can skip duplicates and a compacted topic keeps each row once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.jobs.spark.kept import kept_on_disk
from aiowheel.jobs.spark.uris import Topic
from aiowheel.jobs.spark.values import json_of


@dataclass(frozen=True, slots=True)
class TopicRecords:
    """A sink that sends rows to a topic; pass `write` to foreachBatch, or call it with a frame.

    Attributes:
        topic: The topic.
        key: The columns that identify a row. The key of a record is the text of a single column, or
            a JSON object of several: ``("id",)`` for outcomes, ``("key", "fire")`` for idle events.
        options: Additional options for Spark's writer, such as ``kafka.security.protocol``.
    """

    topic: Topic
    key: Sequence[str]
    options: Mapping[str, str] = field(default_factory=dict[str, str])

    def write(self, frame: DataFrame, _batch_id: int = 0) -> int:
        """Send each row as a JSON object of all its columns.

        Returns:
            The number of rows.

        Cost: one action on *frame*, which is kept on the workers' disks during the call.
        """
        options = {"kafka.bootstrap.servers": self.topic.servers, "topic": self.topic.name}
        with kept_on_disk(frame) as (kept, count):  # Spark reports no metrics of this writer
            records = kept.select(self._key(), json_of(frame.columns).alias("value"))
            records.write.format("kafka").options(**{**options, **self.options}).save()
        return count

    def _key(self) -> Column:
        if len(self.key) == 1:
            return F.col(self.key[0]).cast("string").alias("key")
        return json_of(self.key).alias("key")
