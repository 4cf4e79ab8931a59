"""The purgatory as a stream: operations and events arrive in folders, outcomes leave. Rank 5.

A trace is spread over shards by key, then over shards by operation; see `_stages`. Outcomes do not
depend on how the rows are cut into files and micro-batches, as long as none is late.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.errors import BadInputError
from aiowheel.pipeline._event_time import timestamp
from aiowheel.pipeline._stages import (
    NO_OPERATION,
    OUTCOME_DDL,
    ROW_DDL,
    DecideOperations,
    MatchKeys,
)
from aiowheel.pipeline._trace_frames import read_events, read_operations, rejects
from aiowheel.pipeline.schemas import Flaw, per_second
from aiowheel.pipeline.sinks import BatchFolders
from aiowheel.readers import Format, Unit

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_SETTINGS: Final = "aiowheel.json"


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
    checkpoint: Path
    unit: Unit
    tick: int = 1
    max_lateness_ms: int = 0
    max_ahead_ms: int = 86_400_000
    operations_format: Format = Format.PARQUET
    events_format: Format = Format.PARQUET
    shards: int = 16
    files_per_batch: int = 100
    written: dict[str, dict[int, int]] = field(
        default_factory=lambda: {"outcomes": {}, "rejects": {}}
    )

    def start(self, spark: SparkSession, *, until_empty: bool = False) -> list[StreamingQuery]:
        """Start, or go on where the checkpoint stands: the outcomes first, then the rejects.

        Args:
            spark: The session.
            until_empty: End when what lies in the folders is worked off.

        Raises:
            BadInputError: The checkpoint was made with other settings, or *out* by another stream.
        """
        self._keep_settings()
        operations = self._flawed_if_ahead(self._read_operations(spark), "created")
        events = self._flawed_if_ahead(self._read_events(spark), "time")
        bad = rejects(operations).unionByName(rejects(events))
        return [
            self._write(self._decide(operations, events), "outcomes", until_empty=until_empty),
            self._write(bad, "rejects", until_empty=until_empty),
        ]

    def _read_operations(self, spark: SparkSession) -> DataFrame:
        form, count = self.operations_format, self.files_per_batch
        return read_operations(spark, self.operations, form, self.unit, files_per_batch=count)

    def _read_events(self, spark: SparkSession) -> DataFrame:
        form, count = self.events_format, self.files_per_batch
        return read_events(spark, self.events, form, self.unit, files_per_batch=count)

    def _flawed_if_ahead(self, rows: DataFrame, time: str) -> DataFrame:
        # Now is the start of the micro-batch: a batch that is repeated repeats its choice.
        now_ms = F.unix_millis(F.current_timestamp()) + F.lit(self.max_ahead_ms)
        second = F.lit(per_second(self.unit)).cast("bigint")
        seconds = F.call_function("div", F.col(time), second)
        ahead = ~F.col("flush") & (seconds > F.call_function("div", now_ms, F.lit(1_000)))
        return rows.withColumn("flaw", F.coalesce("flaw", F.when(ahead, F.lit(Flaw.AHEAD.value))))

    def _decide(self, operations: DataFrame, events: DataFrame) -> DataFrame:
        rows = self._by_key(operations).unionByName(self._by_event(events))
        hits = rows.groupBy("shard").transformWithStateInPandas(
            MatchKeys(self.tick, self.unit),
            ROW_DDL,
            "append",
            "EventTime",
            eventTimeColumnName="ts",
        )
        by_operation = hits.withColumn("shard", self._shard("id"))
        return by_operation.groupBy("shard").transformWithStateInPandas(
            DecideOperations(self.tick, self.unit), OUTCOME_DDL, "append", "EventTime"
        )

    def _by_key(self, operations: DataFrame) -> DataFrame:
        timed = self._timed(operations, "created")
        return timed.select(
            "*", F.posexplode_outer(F.arrays_zip("keys", "thresholds")).alias("place", "watched")
        ).select(
            self._shard("watched.keys").alias("shard"),
            "ts",
            "id",
            F.coalesce("watched.keys", F.lit("")).alias("key"),
            F.col("created").alias("time"),
            F.coalesce("watched.thresholds", F.lit(0)).alias("value"),
            F.when(F.col("place") == 0, F.col("keys")).alias("keys"),
            F.col("wanted").cast("bigint").alias("wanted"),
            "deadline",
        )

    def _by_event(self, events: DataFrame) -> DataFrame:
        return self._timed(events, "time").select(
            self._shard("key").alias("shard"),
            "ts",
            F.lit("").alias("id"),
            F.coalesce("key", F.lit("")).alias("key"),
            "time",
            "value",
            F.lit(None).cast("array<string>").alias("keys"),
            F.lit(0).cast("bigint").alias("wanted"),
            F.lit(NO_OPERATION).cast("bigint").alias("deadline"),
        )

    def _timed(self, rows: DataFrame, time: str) -> DataFrame:
        """The rows that can be used; two watermarks, so that the slower stream is waited for."""
        sound = rows.where(F.col("flaw").isNull()).withColumn("ts", timestamp(time, self.unit))
        return sound.withWatermark("ts", f"{self.max_lateness_ms} milliseconds")

    def _shard(self, column: str) -> Any:
        return F.pmod(F.xxhash64(column), F.lit(self.shards)).cast("int")

    def _write(self, rows: DataFrame, name: str, *, until_empty: bool) -> StreamingQuery:
        checkpoint = self.checkpoint / name
        folders = BatchFolders(self.out / name, checkpoint)

        def write(frame: DataFrame, batch_id: int) -> None:
            self.written[name][batch_id] = folders.write(frame, batch_id)

        writer = (
            rows.writeStream.queryName(f"aiowheel-purgatory-{name}")
            .outputMode("append")
            .option("checkpointLocation", str(checkpoint))
            .foreachBatch(write)
        )
        if until_empty:
            writer = writer.trigger(availableNow=True)
        return writer.start()

    def _keep_settings(self) -> None:
        """Have the checkpoint remember what its state depends on."""
        ours = {"unit": self.unit.value, "tick": self.tick, "shards": self.shards}
        file = self.checkpoint / _SETTINGS
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            hidden = file.with_name(f".{file.name}.tmp")
            hidden.write_text(json.dumps(ours), encoding="utf-8")
            hidden.rename(file)
            return
        theirs = json.loads(file.read_text(encoding="utf-8"))
        for name, value in ours.items():
            if theirs.get(name) != value:
                raise BadInputError(
                    f"{self.checkpoint}: was made with {name} {theirs.get(name)}, not {value}"
                )
