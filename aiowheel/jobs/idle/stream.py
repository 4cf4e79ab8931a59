"""Idle detection over files that arrive in a folder. Rank 5.

Times stay integers of the files' unit. Only Spark's watermark, in milliseconds, uses a timestamp
derived from them; the shards settle the touches behind the watermark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiowheel.errors import MissingExtraError

try:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name
    from pyspark.sql.streaming.query import StreamingQuery
except ImportError as _error:
    raise MissingExtraError("spark") from _error

from aiowheel.jobs.idle.merge import events_in, merged_parts
from aiowheel.jobs.idle.processor import EVENTS_DDL, IdleProcessor
from aiowheel.jobs.idle.touch_files import TOUCHES_DDL, TouchFiles
from aiowheel.jobs.spark.checkpoint import Checkpoint
from aiowheel.jobs.spark.layout import RowTime
from aiowheel.jobs.spark.observing import observe_packs, observe_taken
from aiowheel.jobs.spark.processor import by_shard
from aiowheel.jobs.spark.query import start_query
from aiowheel.jobs.spark.sinks import BatchFolders, batch_folders
from aiowheel.jobs.spark.sources import BINARY_FILES_DDL, watch_options
from aiowheel.jobs.spark.stream_run import FILES_PER_BATCH, INTERVAL_MS, SHARDS, Phase
from aiowheel.jobs.spark.uris import spark_path
from aiowheel.jobs.spark.watermark import flushes, timestamp, with_watermark
from aiowheel.readers import Unit


@dataclass(frozen=True)
class IdleStream:
    """A stream from a folder of files to a folder of idle events.

    Attributes:
        folder: The folder where complete files arrive: written elsewhere or hidden, then renamed.
        out: The parent of the folders ``events`` and ``rejects``.
        checkpoint: The progress of the stream; it belongs to *out*.
        files: How to read a file.
        timeout: In the unit of the files, above 0.
        max_lateness_ms: How far a row may lie behind the newest row of earlier micro-batches.
        shards: The number of shards of the keys; fixed for the life of the checkpoint.
        files_per_batch: The maximum number of files in a micro-batch.
        interval_ms: The time between the starts of two micro-batches.
        delete_files: Whether each file is deleted after its micro-batch.
        written: The number of idle events per micro-batch of this run.
    """

    folder: Path
    out: Path
    checkpoint: Checkpoint
    files: TouchFiles
    timeout: int
    max_lateness_ms: int
    shards: int = SHARDS
    files_per_batch: int = FILES_PER_BATCH
    interval_ms: int = INTERVAL_MS
    delete_files: bool = False
    written: dict[int, int] = field(default_factory=dict[int, int])

    @property
    def unit(self) -> Unit:
        """The unit of all times."""
        return self.files.rules.unit

    @property
    def events(self) -> Path:
        """The folder of the events, with one folder of Parquet per micro-batch and day."""
        return self.out / "events"

    @property
    def rejects(self) -> Path:
        """The folder of the rejects, with one Parquet file per input file that has bad rows."""
        return self.out / "rejects"

    @property
    def settings(self) -> dict[str, object]:
        """The settings that may not change during the life of the checkpoint."""
        return {
            "job": "idle",
            "input": "files",
            "folder": str(self.folder.resolve()),  # Spark cannot continue with another folder
            "out": str(self.out.resolve()),
            "unit": str(self.unit),
            "key": self.files.key_setting,
            "time": self.files.rules.time,
            "time_format": self.files.rules.time_format.value,
            "timeout": self.timeout,
            "max_lateness_ms": self.max_lateness_ms,
            "shards": self.shards,
        }

    def start(self, spark: SparkSession, phase: Phase) -> StreamingQuery:
        """Start the query of a phase, or continue from the open checkpoint.

        Raises:
            BadInputError: The folder of events belongs to another stream.
        """
        fired = RowTime("fire", self.unit)
        folders = BatchFolders(self.events, self.checkpoint.folder, fired)

        def write(frame: DataFrame, batch_id: int) -> None:
            self.written[batch_id] = folders.write(frame, batch_id)

        packs, end = self._packs(spark, phase), flushes(spark, self.checkpoint)
        events = detected(packs, end, self.timeout, self.unit, self.max_lateness_ms)
        return start_query(events, "idle", self.checkpoint, phase, self.interval_ms, write)

    def _packs(self, spark: SparkSession, phase: Phase) -> DataFrame:
        delete = self.delete_files and phase.reads_input
        files = (
            spark.readStream.format("binaryFile")
            .schema(BINARY_FILES_DDL)
            .options(**watch_options(self.files_per_batch, delete=delete))
            .load(spark_path(self.folder))
        )
        paths = phase.of_input(files).select("path")
        reader: Any = self.files.reader(self.rejects, self.shards)
        touches = paths.mapInArrow(reader, TOUCHES_DDL).observe(
            "touches",
            F.sum("rejected").alias("rejected"),
            F.sum("irregular").alias("irregular"),
        )
        return touches.where(F.col("pack").isNotNull())


def detected(
    packs: DataFrame, end: DataFrame, timeout: int, unit: Unit, max_lateness_ms: int
) -> DataFrame:
    """Select ``fire: bigint, key: string`` of the idle events.

    The numbers of packed touches are observed, and under the name "taken" those of taken touches,
    which exclude late ones.

    Args:
        packs: Packs of ``time`` and ``key``, in the columns of `packs.PACK_DDL`.
        end: The rows of `watermark.flushes`.
        timeout: In *unit*.
        unit: The unit of the times.
        max_lateness_ms: How far a touch may lie behind the newest one of earlier micro-batches.
    """
    timed = observe_packs(packs, "touches").select(
        "shard", "pack", timestamp("latest", unit).alias("ts")
    )
    rows = with_watermark(timed.unionByName(end, allowMissingColumns=True), max_lateness_ms)
    found = by_shard(rows, IdleProcessor(timeout, unit), EVENTS_DDL)
    events = observe_taken(found, F.col("key").isNull(), "taken")
    return events.where(F.col("key").isNotNull()).select("fire", "key")


def read_idle_events(folder: Path) -> Iterator[tuple[int, str]]:
    """Yield the events that a stream has found so far, by fire time and key, without Spark.

    Events of later micro-batches have later fire times, so only the files of one
    micro-batch are merged.
    """
    for batch in batch_folders(folder):
        for rows in merged_parts(sorted(batch.rglob("*.parquet"))):
            yield from events_in(rows)
