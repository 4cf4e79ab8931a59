"""Rows as records of a Kafka topic. Rank 5.

A repeated micro-batch is sent again: at least once. The key of a record names its row, so that
consumers pass over a key that they have, and a compacted topic keeps each row once.
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
    """Sends the micro-batches of a stream, or a frame, to a topic; give `write` to foreachBatch.

    Attributes:
        topic: Where to.
        key: The columns that name a row. Of one the record's key is its text, of several a JSON
            object: ``("id",)`` for outcomes, ``("key", "fire")`` for idle events.
        options: More options for Spark's writer, such as ``kafka.security.protocol``.
    """

    topic: Topic
    key: Sequence[str]
    options: Mapping[str, str] = field(default_factory=dict[str, str])

    def write(self, frame: DataFrame, _batch_id: int = 0) -> int:
        """Send each row as a JSON object with all its columns.

        Returns:
            How many rows that were.

        Cost: one action on *frame*, which is kept on the workers' disks meanwhile.
        """
        options = {"kafka.bootstrap.servers": self.topic.servers, "topic": self.topic.name}
        with kept_on_disk(frame) as (kept, count):  # Spark observes nothing of this writer
            records = kept.select(self._key(), json_of(frame.columns).alias("value"))
            records.write.format("kafka").options(**{**options, **self.options}).save()
        return count

    def _key(self) -> Column:
        if len(self.key) == 1:
            return F.col(self.key[0]).cast("string").alias("key")
        return json_of(self.key).alias("key")
