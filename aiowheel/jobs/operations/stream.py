"""The purgatory as a stream: operations and events arrive in folders, outcomes leave. Rank 5.

A trace is spread over shards by key, then over shards by operation; see `_stages`. Outcomes do not
depend on how the rows are cut into files and micro-batches, as long as none is late.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.jobs.operations.frames import (
    least_value,
    read_events,
    read_operations,
    rejects,
    sound,
)
from aiowheel.jobs.operations.schemas import Flaw, per_second
from aiowheel.jobs.operations.stages import (
    COPIES,
    EVENTS,
    MATCHED_DDL,
    OUTCOME_DDL,
    DecideOperations,
    MatchKeys,
)
from aiowheel.jobs.spark.checkpoint import Checkpoint
from aiowheel.jobs.spark.packs import PACK_DDL, pack_rows
from aiowheel.jobs.spark.path import spark_path
from aiowheel.jobs.spark.sinks import BatchFolders
from aiowheel.jobs.spark.watermark import FLUSH_MS, timestamp
from aiowheel.readers import Format, Unit

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

_POLL: Final = "500 milliseconds"
_FILES_DDL: Final = "path string, modificationTime timestamp, length bigint, content binary"


@dataclass(frozen=True)
class PurgatoryStream:
    """A stream from two folders to one.

    Attributes:
        operations: Folder where files of operations arrive, each renamed into it when whole.
        events: The same for events.
        out: Gets ``outcomes`` and ``rejects``, one folder of Parquet a micro-batch each.
        checkpoint: Remembers how far the stream is; goes with *out*.
        unit: Of all times.
        tick: Of the wheel, in *unit*.
        max_lateness_ms: How far a row may lie behind the newest of its stream in earlier batches.
        max_ahead_ms: How far after now a row may lie; beyond, it would settle what has not come.
        operations_format: Parquet, ndjson or csv.
        events_format: The same for events.
        shards: Of each stage; fixed for the life of the checkpoint.
        files_per_batch: At most so many files of each folder make a micro-batch.
        written: Outcomes and rejects of this run, by batch.
    """

    operations: Path
    events: Path
    out: Path
    checkpoint: Checkpoint
    unit: Unit
    tick: int = 1
    max_lateness_ms: int = 0
    max_ahead_ms: int = 86_400_000
    operations_format: Format = Format.PARQUET
    events_format: Format = Format.PARQUET
    shards: int = 16
    files_per_batch: int = 100
    written: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))

    def start(self, spark: SparkSession) -> list[StreamingQuery]:
        """Start, or go on where the checkpoint stands: the query of outcomes, that of rejects.

        Raises:
            BadInputError: The checkpoint was made with other settings or has been flushed, or *out*
                is that of another stream.
        """
        self.checkpoint.open(
            {
                "job": "purgatory",
                "operations": str(self.operations.resolve()),  # Spark cannot go on with another
                "events": str(self.events.resolve()),
                "unit": self.unit.value,
                "tick": self.tick,
                "max_lateness_ms": self.max_lateness_ms,
                "shards": self.shards,
            }
        )
        operations = self._flawed_if_ahead(self._read_operations(spark), "created")
        events = self._flawed_if_ahead(self._read_events(spark), "time")
        rows = self._timed(self._by_key(sound(operations)), "operations", spark).unionByName(
            self._timed(self._by_event(sound(events)), "events", spark)
        )
        bad = rejects(operations).unionByName(rejects(events))
        folder = self.checkpoint.folder
        return [
            self._write(self._decide(rows), "outcomes", folder),
            self._write(bad, "rejects", folder / "rejects"),
        ]

    def drain(self, queries: list[StreamingQuery]) -> None:
        """Work off what lies in the folders, end what waits by its timeout, and stop.

        Queries that are stopped meanwhile are left as they are, to be drained another time.
        """
        self.catch_up(queries)
        if not all(query.isActive for query in queries):
            return
        self.checkpoint.send_flush()
        self.catch_up(queries)
        if all(query.isActive for query in queries):
            for query in queries:
                query.stop()
            self.checkpoint.end()

    @staticmethod
    def catch_up(queries: list[StreamingQuery]) -> None:
        """Work off what lies in the folders now."""
        for query in queries:
            query.processAllAvailable()

    def _read_operations(self, spark: SparkSession) -> DataFrame:
        form, count = self.operations_format, self.files_per_batch
        return read_operations(spark, self.operations, form, files_per_batch=count)

    def _read_events(self, spark: SparkSession) -> DataFrame:
        form, count = self.events_format, self.files_per_batch
        return read_events(spark, self.events, form, files_per_batch=count)

    def _flawed_if_ahead(self, rows: DataFrame, time: str) -> DataFrame:
        # Now is the start of the micro-batch: a batch that is repeated repeats its choice.
        now_ms = F.unix_millis(F.current_timestamp()) + F.lit(self.max_ahead_ms)
        second = F.lit(per_second(self.unit)).cast("bigint")
        seconds = F.call_function("div", F.col(time), second)
        ahead = seconds > F.call_function("div", now_ms, F.lit(1_000))
        return rows.withColumn("flaw", F.coalesce("flaw", F.when(ahead, F.lit(Flaw.AHEAD.value))))

    def _by_key(self, operations: DataFrame) -> DataFrame:
        by_key = operations.select("*", F.posexplode("keys").alias("place", "key"))
        copies = by_key.select(
            "id",
            "key",
            F.col("created").alias("time"),
            least_value(F.col("place")).alias("least"),
            F.when(F.col("place") == 0, F.col("keys")).alias("keys"),
            "wanted",
            "deadline",
        )
        return copies.select(self._shard_of_key(), *COPIES)

    def _by_event(self, events: DataFrame) -> DataFrame:
        return events.select(self._shard_of_key(), *EVENTS)

    def _shard_of_key(self) -> Column:
        return F.pmod(F.xxhash64("key"), F.lit(self.shards)).cast("int").alias("shard")

    def _timed(self, rows: DataFrame, kind: str, spark: SparkSession) -> DataFrame:
        """Packs with a watermark: two streams have two, so that the slower one is waited for."""
        # Spark drops what lies at the watermark too: one more keeps the lateness inclusive.
        delay = f"{self.max_lateness_ms + 1} milliseconds"
        packs = rows.mapInArrow(pack_rows, PACK_DDL).select(
            "shard", "count", timestamp("latest", self.unit).alias("ts"), F.col("pack").alias(kind)
        )
        flushes = spark.readStream.format("binaryFile").schema(_FILES_DDL)
        end = flushes.load(spark_path(self.checkpoint.flushes)).select(
            F.lit(0).alias("shard"), F.timestamp_millis(F.lit(FLUSH_MS)).alias("ts")
        )
        timed = packs.unionByName(end, allowMissingColumns=True).withWatermark("ts", delay)
        other = "events" if kind == "operations" else "operations"
        return timed.withColumn(other, F.lit(None).cast("binary"))

    def _decide(self, packs: DataFrame) -> DataFrame:
        came = packs.observe("came", F.sum("count").alias("rows"))
        matched = came.groupBy("shard").transformWithStateInPandas(
            MatchKeys(self.tick, self.unit, self.shards),
            MATCHED_DDL,
            "append",
            "EventTime",
            eventTimeColumnName="ts",
        )
        taken = matched.observe("taken", F.sum("taken").alias("rows"))
        return (
            taken.where(F.col("taken") == 0)
            .groupBy("shard")
            .transformWithStateInPandas(
                DecideOperations(self.tick, self.unit), OUTCOME_DDL, "append", "EventTime"
            )
        )

    def _write(self, rows: DataFrame, name: str, checkpoint: Path) -> StreamingQuery:
        folders = BatchFolders(self.out / name, checkpoint)

        def write(frame: DataFrame, batch_id: int) -> None:
            self.written[name][batch_id] = folders.write(frame, batch_id)

        return (
            rows.writeStream.queryName(f"aiowheel-purgatory-{name}")
            .outputMode("append")
            .option("checkpointLocation", str(checkpoint))
            .trigger(processingTime=_POLL)
            .foreachBatch(write)
            .start()
        )


def late_rows(batch: StreamingQueryProgress) -> int:
    """How many rows of a micro-batch came late and are lost, operations once for each key."""
    came, taken = (batch.observedMetrics.get(name) for name in ("came", "taken"))
    return (came.rows or 0 if came else 0) - (taken.rows or 0 if taken else 0)
