"""The purgatory as a stream: operations and events arrive in folders, outcomes leave. Rank 5.

A trace is spread over shards by key, then over shards by operation; see `_stages`. Outcomes do not
depend on how the rows are cut into files and micro-batches, as long as none is late.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.errors import AiowheelError
from aiowheel.jobs.operations.decided import Decided
from aiowheel.jobs.operations.frames import (
    least_value,
    read_events,
    read_operations,
    rejects,
    sound,
)
from aiowheel.jobs.operations.pending import count_pending
from aiowheel.jobs.operations.schemas import OUTCOMES, REJECTS, Flaw, per_second
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
from aiowheel.jobs.spark.sinks import BatchFolders
from aiowheel.jobs.spark.source_files import refuse_missing_files
from aiowheel.jobs.spark.sources import Source
from aiowheel.jobs.spark.stream_run import Phase
from aiowheel.jobs.spark.watermark import flushes, timestamp
from aiowheel.readers import Format, Unit

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery


class Written(NamedTuple):
    """What one micro-batch did.

    Attributes:
        entered: Operations that the second stage took.
        outcomes: Rows written.
        rejects: Rows written.
    """

    entered: int
    outcomes: int
    rejects: int


class Counts(NamedTuple):
    """What one micro-batch read.

    Attributes:
        operations: Rows read.
        events: Rows read.
        late: Operations and events that came too late and are lost.
    """

    operations: int
    events: int
    late: int


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
        written: What this run wrote, by batch; the last one may not be finished.
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
    written: dict[int, Written] = field(default_factory=dict[int, "Written"])

    @property
    def settings(self) -> dict[str, object]:
        """What the checkpoint must have been made with."""
        return {
            "job": "purgatory",
            "operations": str(self.operations.resolve()),  # Spark cannot go on with another
            "events": str(self.events.resolve()),
            "out": str(self.out.resolve()),
            "unit": self.unit.value,
            "tick": self.tick,
            "max_lateness_ms": self.max_lateness_ms,
            "shards": self.shards,
        }

    def start(self, spark: SparkSession, phase: Phase) -> StreamingQuery:
        """Start the query of a phase, or go on where the open checkpoint stands.

        Raises:
            BadInputError: *out* is that of another stream.
        """
        operations, events = (
            self._flawed_if_ahead(
                read(
                    spark,
                    Source(
                        str(phase.input(folder, self.checkpoint)),
                        form,
                        per_batch=self.files_per_batch,
                    ),
                ),
                time,
            )
            for read, folder, form, time in (
                (read_operations, self.operations, self.operations_format, "created"),
                (read_events, self.events, self.events_format, "time"),
            )
        )
        rows = self._timed(self._by_key(_used(operations, "operations")), "operations", spark)
        rows = rows.unionByName(
            self._timed(self._by_event(_used(events, "events")), "events", spark)
        )
        bad = rejects(operations).unionByName(rejects(events))
        # One query for both, so that one look at a row decides where it goes.
        found = self._decide(rows).unionByName(bad, allowMissingColumns=True)
        return (
            found.writeStream.queryName("aiowheel-purgatory")
            .outputMode("append")
            .option("checkpointLocation", str(self.checkpoint.folder))
            .trigger(**phase.trigger)
            .foreachBatch(self._write())
            .start()
        )

    def checked_counts(self, batch: StreamingQueryProgress) -> Counts:
        """What a finished micro-batch of this run read, and how much of it was late.

        Raises:
            AiowheelError: A row that the batch read is neither used, nor rejected, nor late.
        """
        operations, operations_rejected = _observed(batch, "operations", "rows", "rejected")
        events, events_rejected = _observed(batch, "events", "rows", "rejected")
        taken_operations, taken_events = _observed(batch, "taken", "operations", "events")
        late_operations = operations - operations_rejected - taken_operations
        late_events = events - events_rejected - taken_events
        written = self.written[batch.batchId]
        name = f"batch {batch.batchId}"
        if late_operations < 0 or late_events < 0:
            raise _wrong(
                f"{name}: of {operations:,} operations and {events:,} events "
                f"{operations_rejected:,} and {events_rejected:,} were rejected, and yet "
                f"{taken_operations:,} and {taken_events:,} used"
            )
        if written.entered != taken_operations:
            raise _wrong(
                f"{name}: {taken_operations:,} operations left the first stage, "
                f"{written.entered:,} came to the second"
            )
        rejected = operations_rejected + events_rejected
        if written.rejects != rejected:
            raise _wrong(
                f"{name}: {rejected:,} rows were rejected, {written.rejects:,} written to rejects"
            )
        return Counts(operations, events, late_operations + late_events)

    def count_pending(self, spark: SparkSession) -> int:
        """Count the operations that wait as of the last finished micro-batch."""
        return count_pending(spark, self.checkpoint.folder)

    def finished(self) -> list[Written]:
        """What the finished micro-batches of this run wrote."""
        last = self.checkpoint.last_finished_batch()
        return [written for batch, written in self.written.items() if batch <= last]

    def check_total(self, before: int, after: int) -> None:
        """Compare what came with what left and what waits.

        Args:
            before: How many operations waited when this run began.
            after: How many wait at its end.

        Raises:
            AiowheelError: An operation has been lost or doubled.
        """
        finished = self.finished()
        entered, ended = (
            sum(row.entered for row in finished),
            sum(row.outcomes for row in finished),
        )
        if before + entered != ended + after:
            raise _wrong(
                f"{before:,} operations waited and {entered:,} came, but {ended:,} ended "
                f"and {after:,} wait"
            )

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
        end = flushes(spark, self.checkpoint)
        timed = packs.unionByName(end, allowMissingColumns=True).withWatermark("ts", delay)
        other = "events" if kind == "operations" else "operations"
        return timed.withColumn(other, F.lit(None).cast("binary"))

    def _decide(self, packs: DataFrame) -> DataFrame:
        decided = Decided(self.checkpoint.folder / "decided")
        matched = packs.groupBy("shard").transformWithStateInPandas(
            MatchKeys(self.tick, self.unit, decided, self.shards),
            MATCHED_DDL,
            "append",
            "EventTime",
            eventTimeColumnName="ts",
        )
        taken = matched.observe(
            "taken",
            F.sum("taken_operations").alias("operations"),
            F.sum("taken_events").alias("events"),
        )
        return (
            taken.where(F.col("operations").isNotNull() | F.col("events").isNotNull())
            .groupBy("shard")
            .transformWithStateInPandas(
                DecideOperations(self.tick, self.unit, decided), OUTCOME_DDL, "append", "EventTime"
            )
        )

    def _write(self) -> Callable[[DataFrame, int], None]:
        folder = self.checkpoint.folder
        outcomes = BatchFolders(self.out / "outcomes", folder)
        refused = BatchFolders(self.out / "rejects", folder)
        decided = Decided(folder / "decided")

        def write(frame: DataFrame, batch_id: int) -> None:
            refuse_missing_files(folder, batch_id)
            frame.persist()  # else the stages run once for each of the two tables
            try:
                entered = frame.select(F.sum("entered")).first()
                ended = frame.where(F.col("outcome").isNotNull()).select(*OUTCOMES.names)
                bad = frame.where(F.col("reason").isNotNull()).select(*REJECTS.names)
                self.written[batch_id] = Written(
                    entered=int(entered[0] or 0) if entered else 0,
                    outcomes=outcomes.write(ended, batch_id),
                    rejects=refused.write(bad, batch_id),
                )
            finally:
                frame.unpersist()
            decided.forget()

        return write


def _used(rows: DataFrame, name: str) -> DataFrame:
    """The rows without a flaw; how many there are of either kind is observed under *name*."""
    counts = (F.count(F.lit(1)).alias("rows"), F.count("flaw").alias("rejected"))
    return sound(rows.observe(name, *counts))


def _observed(batch: StreamingQueryProgress, name: str, *counts: str) -> list[int]:
    row = batch.observedMetrics.get(name)
    return [int(row[count] or 0) if row else 0 for count in counts]


def _wrong(numbers: str) -> AiowheelError:
    return AiowheelError(f"{numbers}: the result of this stream is wrong")
