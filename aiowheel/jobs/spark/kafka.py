"""Rows as records of a Kafka topic. Rank 5.

A repeated micro-batch is sent again: delivery is at least once. The key of a record identifies its
row, so that consumers can skip duplicates and a compacted topic keeps each row once.

Kafka accepts records up to 1 MiB by default. A row with a text of almost this length must fit into
a record, which has the text in its key and in its value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.jobs.spark.kept import kept_on_disk
from aiowheel.jobs.spark.uris import Topic
from aiowheel.jobs.spark.values import json_of

#: The key of rejected rows.
REJECTS_KEY: Final = ("source", "raw")
_LONGEST: Final = 65_536  # characters; JSON needs at most 6 bytes for each
_LARGEST_RECORD: Final = 16_777_216  # bytes; the broker has the limit that counts


@dataclass(frozen=True, slots=True)
class TopicRecords:
    """A sink that sends rows to a topic; pass `write` to foreachBatch, or call it with a frame.

    Attributes:
        topic: The topic.
        key: The columns that identify a row. The key of a record is the text of a single column, or
            a JSON object of several: ``("id",)`` for outcomes, ``("key", "fire")`` for idle events.
            In the key, the SHA-256 of a text stands for a text of more than 65,536 characters.
        options: Additional options for Spark's writer, such as ``kafka.security.protocol``.
    """

    topic: Topic
    key: Sequence[str]
    options: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def write(self, frame: DataFrame, _batch_id: int = 0) -> int:
        """Send each row as a JSON object of all its columns.

        Of a rejected row, `REJECTS_KEY`, only the first 65,536 characters of ``raw`` are sent.

        Returns:
            The number of rows.

        Cost: one action on *frame*, which is kept on the workers' disks during the call.
        """
        options = {
            "kafka.bootstrap.servers": self.topic.servers,
            "kafka.max.request.size": str(_LARGEST_RECORD),
            "topic": self.topic.name,
        }
        with kept_on_disk(frame) as (kept, count):  # Spark reports no metrics of this writer
            records = kept.select(self._key(kept), self._value(kept))
            records.write.format("kafka").options(**{**options, **self.options}).save()
        return count

    def _key(self, rows: DataFrame) -> Column:
        types = dict(rows.dtypes)
        parts = [_shortened(name) if types[name] == "string" else F.col(name) for name in self.key]
        if len(parts) == 1:
            return parts[0].cast("string").alias("key")
        return json_of(parts).alias("key")

    def _value(self, rows: DataFrame) -> Column:
        if tuple(self.key) == REJECTS_KEY:
            beginning = F.left("raw", F.lit(_LONGEST)).alias("raw")
            columns = [beginning if name == "raw" else F.col(name) for name in rows.columns]
            return json_of(columns).alias("value")
        return json_of(rows.columns).alias("value")


def _shortened(name: str) -> Column:
    is_long = F.length(name) > _LONGEST
    return F.when(is_long, F.sha2(name, 256)).otherwise(F.col(name)).alias(name)
