"""Idle detection over a growing table of touches: a topic, a Delta table or files. Rank 5."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.jobs.idle.parquet_touches import flaw_of_touch
from aiowheel.jobs.idle.stream import detected
from aiowheel.jobs.spark.checkpoint import Checkpoint
from aiowheel.jobs.spark.kafka import REJECTS_KEY
from aiowheel.jobs.spark.layout import RowTime
from aiowheel.jobs.spark.packs import PACK_DDL, pack_rows
from aiowheel.jobs.spark.processor import shard_of_key
from aiowheel.jobs.spark.query import start_query
from aiowheel.jobs.spark.sources import Source, read_touches, readable, unreadable
from aiowheel.jobs.spark.stream_run import INTERVAL_MS, SHARDS, Phase
from aiowheel.jobs.spark.targets import Sink, open_sink
from aiowheel.jobs.spark.uris import whole_uri
from aiowheel.jobs.spark.watermark import DAY_MS, flushes, latest_now
from aiowheel.readers import Unit

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class IdleTableStream:
    """A stream from a table with the columns ``key`` and ``t`` to a table of idle events.

    Attributes:
        touches: The source of the rows; it limits the files or records in a micro-batch.
        out: The URI of the events.
        rejects: The URI of the rejected rows; None only counts them.
        checkpoint: The progress of the stream; it belongs to *out*.
        unit: The unit of all times.
        timeout: In *unit*, above 0.
        max_lateness_ms: How far a row may lie behind the newest row of earlier micro-batches.
        earliest: The earliest accepted time.
        latest: The latest accepted time; None means one day after the start of the micro-batch, so
            that a wrong time cannot end the stream.
        limit: The greatest possible time, an upper bound of *latest*.
        shards: The number of shards of the keys; fixed for the life of the checkpoint.
        interval_ms: The time between the starts of two micro-batches.
        topic_options: Additional options for the writer of a topic, as for `open_sink`.
        written: The number of idle events per micro-batch of this run.
    """

    touches: Source
    out: str
    rejects: str | None
    checkpoint: Checkpoint
    unit: Unit
    timeout: int
    max_lateness_ms: int
    earliest: int
    latest: int | None
    limit: int
    shards: int = SHARDS
    interval_ms: int = INTERVAL_MS
    topic_options: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    written: dict[int, int] = field(default_factory=dict[int, int])

    @property
    def settings(self) -> dict[str, object]:
        """The settings that may not change during the life of the checkpoint."""
        return {
            "job": "idle",
            "input": "table",
            "folder": whole_uri(self.touches.uri),  # Spark cannot continue with another source
            "out": whole_uri(self.out),
            "rejects": None if self.rejects is None else whole_uri(self.rejects),
            "unit": str(self.unit),
            "timeout": self.timeout,
            "max_lateness_ms": self.max_lateness_ms,
            "shards": self.shards,
        }

    def start(self, spark: SparkSession, phase: Phase) -> StreamingQuery:
        """Start the query of a phase, or continue from the open checkpoint.

        Raises:
            BadInputError: The place of a result belongs to another stream, or the columns of the
                table differ.
        """
        folder = str(self.checkpoint.folder)
        fired = RowTime("fire", self.unit)
        open_here = partial(open_sink, spark, checkpoint=folder, options=self.topic_options)
        events = open_here(self.out, key=("key", "fire"), time=fired)
        refused: Sink | None = None
        if self.rejects is not None:
            refused = open_here(self.rejects, key=REJECTS_KEY)

        def write(frame: DataFrame, batch_id: int) -> None:
            if refused is None:
                self.written[batch_id] = events.write(frame, batch_id)
                return
            frame.persist()  # otherwise the shards run once per output table
            try:
                idle = frame.where(F.col("reason").isNull()).select("fire", "key")
                self.written[batch_id] = events.write(idle, batch_id)
                bad = frame.where(F.col("reason").isNotNull()).select("source", "reason", "raw")
                refused.write(bad, batch_id)
            finally:
                frame.unpersist()

        found = self._found(spark, phase)
        return start_query(found, "idle", self.checkpoint, phase, self.interval_ms, write)

    def _found(self, spark: SparkSession, phase: Phase) -> DataFrame:
        latest = latest_now(self.unit, DAY_MS) if self.latest is None else F.lit(self.latest)
        flaw = flaw_of_touch(self.earliest, F.least(latest, F.lit(self.limit)))
        touches = replace(self.touches, delete=self.touches.delete and phase.reads_input)
        rows = phase.of_input(read_touches(spark, touches, flaw))
        seen = rows.observe(
            "touches",
            F.count("reason").alias("rejected"),
            F.sum(F.lit(0)).alias("irregular"),
        )
        used = readable(seen).select(shard_of_key(self.shards), F.col("t").alias("time"), "key")
        packs, end = used.mapInArrow(pack_rows, PACK_DDL), flushes(spark, self.checkpoint)
        events = detected(packs, end, self.timeout, self.unit, self.max_lateness_ms)
        if self.rejects is None:
            return events
        return events.unionByName(unreadable(rows), allowMissingColumns=True)
