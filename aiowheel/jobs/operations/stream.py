"""The purgatory as a stream: from files, topics or Delta tables to one output. Rank 5.

Outcomes do not depend on how the rows are divided into files and micro-batches, as long as no row
is late.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.errors import AiowheelError
from aiowheel.jobs.operations.decided import Decided
from aiowheel.jobs.operations.frames import (
    LIST_READER,
    read_events,
    read_operations,
    rejects,
)
from aiowheel.jobs.operations.pending import count_pending
from aiowheel.jobs.operations.rows import check_parquet_file
from aiowheel.jobs.operations.settling import Settling, counted_sound, flawed_if_ahead
from aiowheel.jobs.schemas import EVENTS, OPERATIONS, OUTCOMES, REJECTS
from aiowheel.jobs.spark.checkpoint import Checkpoint
from aiowheel.jobs.spark.kafka import REJECTS_KEY
from aiowheel.jobs.spark.layout import RowTime
from aiowheel.jobs.spark.progress import packed_rows, taken_rows
from aiowheel.jobs.spark.query import start_query
from aiowheel.jobs.spark.session import changed_settings
from aiowheel.jobs.spark.sources import Source
from aiowheel.jobs.spark.stream_run import (
    FILES_PER_BATCH,
    INTERVAL_MS,
    RECORDS_PER_BATCH,
    SHARDS,
    Phase,
)
from aiowheel.jobs.spark.targets import open_sink
from aiowheel.jobs.spark.uris import inside, local_path, whole_uri
from aiowheel.jobs.spark.watermark import DAY_MS, flushes
from aiowheel.readers import Format, Unit

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

_STARTING: Final = threading.Lock()


class Written(NamedTuple):
    """The output of one micro-batch.

    Attributes:
        entered: Operations that the second stage took.
        outcomes: Outcomes written.
        rejects: Rejects written.
        rejected_operations: Operations that were rejected.
        rejected_events: Events that were rejected.
    """

    entered: int
    outcomes: int
    rejects: int
    rejected_operations: int = 0
    rejected_events: int = 0


class Counts(NamedTuple):
    """The input of one micro-batch.

    Attributes:
        operations: Operations read.
        events: Events read.
        late: Operations and events that were dropped because they came too late.
    """

    operations: int
    events: int
    late: int


@dataclass(frozen=True)
class PurgatoryStream:
    """A stream from two input tables to two output tables.

    Attributes:
        operations: A folder where files arrive, each renamed into it when complete; or the URI of
            such a folder, of a topic or of a Delta table.
        events: The same for events.
        out: The place of the tables ``outcomes`` and ``rejects``, named as by `inside`: a folder or
            its URI, with one folder of Parquet per micro-batch in each table; with the prefix
            ``delta:``, Delta tables; or a topic.
        checkpoint: The progress of the stream; it belongs to *out*.
        unit: The unit of all times.
        tick: The tick of the wheel, in *unit*.
        max_lateness_ms: How far a row may lie behind the newest of its stream in earlier batches.
        max_ahead_ms: How far in the future a row may lie; rows beyond it would end the stream's
            pending operations too early.
        operations_format: The format of files: Parquet, ndjson or csv.
        events_format: The same for events.
        shards: The number of shards of each stage; fixed for the life of the checkpoint.
        files_per_batch: The maximum number of files of each folder in a micro-batch.
        records_per_batch: The maximum number of records of each topic.
        interval_ms: The time between the starts of two micro-batches.
        delete_files: Whether each file of a folder is deleted after its micro-batch.
        topic_options: Additional options for the reader and the writer of a topic, such as
            ``kafka.security.protocol``.
        written: The output of this run, by micro-batch; the last one may not be finished.
    """

    operations: str | Path
    events: str | Path
    out: str | Path
    checkpoint: Checkpoint
    unit: Unit
    tick: int = 1
    max_lateness_ms: int = 0
    max_ahead_ms: int = DAY_MS
    operations_format: Format = Format.PARQUET
    events_format: Format = Format.PARQUET
    shards: int = SHARDS
    files_per_batch: int = FILES_PER_BATCH
    records_per_batch: int = RECORDS_PER_BATCH
    interval_ms: int = INTERVAL_MS
    delete_files: bool = False
    topic_options: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    written: dict[int, Written] = field(default_factory=dict[int, "Written"])

    def __post_init__(self) -> None:
        """Check the two inputs, before a session is started."""
        self._sources(Phase.FOLLOW)

    @property
    def settings(self) -> dict[str, object]:
        """The settings that may not change during the life of the checkpoint."""
        return {
            "job": "purgatory",
            "operations": whole_uri(str(self.operations)),  # Spark cannot change the source
            "events": whole_uri(str(self.events)),
            "out": whole_uri(str(self.out)),
            "unit": self.unit.value,
            "tick": self.tick,
            "max_lateness_ms": self.max_lateness_ms,
            "shards": self.shards,
            "operations_format": self.operations_format.value,
            "events_format": self.events_format.value,
        }

    def start(self, spark: SparkSession, phase: Phase) -> StreamingQuery:
        """Start the query of a phase, or continue from the open checkpoint.

        Raises:
            BadInputError: *out* belongs to another stream.
        """
        # A query keeps the settings of its start. One start at a time, because two in a session
        # would restore each other's settings.
        with _STARTING, changed_settings(spark, LIST_READER):
            return self._start(spark, phase)

    def _start(self, spark: SparkSession, phase: Phase) -> StreamingQuery:
        sources = self._sources(phase)
        operations, events = (
            flawed_if_ahead(phase.of_input(read(spark, source)), time, self.unit, self.max_ahead_ms)
            for read, source, time in (
                (read_operations, sources[0], "created"),
                (read_events, sources[1], "time"),
            )
        )
        decided = Decided(self.checkpoint.folder / "decided")
        settling = Settling(self.tick, self.unit, self.max_lateness_ms, self.shards, decided)
        bad = _of(rejects(operations), "operations").unionByName(_of(rejects(events), "events"))
        found = settling.endings(
            counted_sound(operations, "operations"),
            counted_sound(events, "events"),
            flushes(spark, self.checkpoint),
        )
        # One query for outcomes and rejects, so that each row is checked once.
        rows = found.unionByName(bad, allowMissingColumns=True)
        write = self._write(spark, decided)
        return start_query(
            rows,
            "purgatory",
            self.checkpoint,
            phase,
            self.interval_ms,
            write,
            self._check_files,
        )

    def checked_counts(self, batch: StreamingQueryProgress) -> Counts:
        """Return the counts of a finished micro-batch of this run, after checking them.

        Raises:
            AiowheelError: A row of the batch is neither used, nor rejected, nor late.
        """
        taken = taken_rows(batch)
        operations, events = (packed_rows(batch, name) for name in ("operations", "events"))
        late = operations + events - taken.total()
        written = self.written[batch.batchId]
        name = f"batch {batch.batchId}"
        if late < 0:
            raise _inconsistency(
                f"{name}: {operations:,} operations and {events:,} events were read, "
                f"{taken.total():,} used"
            )
        if written.entered != taken["taken_operations"]:
            raise _inconsistency(
                f"{name}: {taken['taken_operations']:,} operations left the first stage, "
                f"{written.entered:,} came to the second"
            )
        rejected = written.rejected_operations + written.rejected_events
        if written.rejects != rejected:
            raise _inconsistency(
                f"{name}: {rejected:,} rows were rejected, {written.rejects:,} written to rejects"
            )
        return Counts(
            operations + written.rejected_operations, events + written.rejected_events, late
        )

    def count_pending(self, spark: SparkSession) -> int:
        """Count the pending operations after the last finished micro-batch."""
        return count_pending(spark, self.checkpoint.folder)

    def finished(self) -> list[Written]:
        """Return the output of the finished micro-batches of this run."""
        last = self.checkpoint.last_finished_batch()
        return [written for batch, written in self.written.items() if batch <= last]

    def check_total(self, before: int, after: int) -> None:
        """Check that the operations that entered equal those that ended or are pending.

        Args:
            before: The number of pending operations at the start of this run.
            after: The number of pending operations at its end.

        Raises:
            AiowheelError: An operation was lost or duplicated.
        """
        finished = self.finished()
        entered, ended = (
            sum(row.entered for row in finished),
            sum(row.outcomes for row in finished),
        )
        if before + entered != ended + after:
            raise _inconsistency(
                f"{before:,} operations waited and {entered:,} came, but {ended:,} ended "
                f"and {after:,} wait"
            )

    def _sources(self, phase: Phase) -> list[Source]:
        most = self.files_per_batch, self.records_per_batch
        delete = self.delete_files and phase.reads_input
        return [
            Source.of_stream(str(place), form, *most, delete=delete, options=self.topic_options)
            for place, form in (
                (self.operations, self.operations_format),
                (self.events, self.events_format),
            )
        ]

    def _check_files(self, files: set[str]) -> None:
        """Check the columns of a micro-batch's local Parquet files before they are read."""
        for place, form, schema in (
            (self.operations, self.operations_format, OPERATIONS),
            (self.events, self.events_format, EVENTS),
        ):
            folder = local_path(str(place))
            if form is Format.PARQUET and folder is not None:
                watched = os.path.normpath(folder.absolute())  # Spark's names have no `..` either
                for file in map(Path, files):
                    # Spark reads no rows from a file without bytes.
                    if file.is_relative_to(watched) and file.stat().st_size:
                        check_parquet_file(file, schema)

    def _write(self, spark: SparkSession, decided: Decided) -> Callable[[DataFrame, int], None]:
        folder = str(self.checkpoint.folder)
        outcomes, refused = (
            open_sink(
                spark,
                inside(str(self.out), name),
                checkpoint=folder,
                key=key,
                time=time,
                options=self.topic_options,
            )
            for name, key, time in (
                ("outcomes", ("id",), RowTime("at", self.unit)),
                ("rejects", REJECTS_KEY, None),
            )
        )

        def write(frame: DataFrame, batch_id: int) -> None:
            frame.persist()  # otherwise the stages run once per output table
            try:
                is_of = [F.count_if(F.col("of") == name) for name in ("operations", "events")]
                counts = frame.select(F.sum("entered"), *is_of).first() or (0, 0, 0)
                ended = frame.where(F.col("outcome").isNotNull()).select(*OUTCOMES.names)
                bad = frame.where(F.col("reason").isNotNull()).select(*REJECTS.names)
                self.written[batch_id] = Written(
                    entered=int(counts[0] or 0),
                    outcomes=outcomes.write(ended, batch_id),
                    rejects=refused.write(bad, batch_id),
                    rejected_operations=int(counts[1]),
                    rejected_events=int(counts[2]),
                )
            finally:
                frame.unpersist()
            decided.forget()

        return write


def _of(rejects: DataFrame, table: str) -> DataFrame:
    return rejects.withColumn("of", F.lit(table))


def _inconsistency(numbers: str) -> AiowheelError:
    return AiowheelError(f"{numbers}: the result of this stream is wrong")
