"""The query plan of a streaming purgatory: operations and events in, endings out. Rank 5.

The rows are distributed over shards by key, then over shards by operation; see `stages`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.jobs.operations.decided import Decided
from aiowheel.jobs.operations.frames import least_value, sound
from aiowheel.jobs.operations.stages import (
    COPIES,
    MATCHED_DDL,
    OUTCOME_DDL,
    TAKEN_COUNTS,
    DecideOperations,
    MatchKeys,
)
from aiowheel.jobs.schemas import EVENTS, Flaw
from aiowheel.jobs.spark.observing import observe_packs, observe_taken
from aiowheel.jobs.spark.packs import PACK_DDL, pack_rows
from aiowheel.jobs.spark.processor import by_shard, shard_of_key
from aiowheel.jobs.spark.watermark import latest_now, timestamp, with_watermark
from aiowheel.readers import Unit


def flawed_if_ahead(rows: DataFrame, time: str, unit: Unit, ahead_ms: int) -> DataFrame:
    """Reject rows too far in the future: they would move the watermark beyond rows still to come.

    Args:
        rows: The result of `read_operations` or `read_events`.
        time: The column to check.
        unit: The unit of the times.
        ahead_ms: How far in the future a row may lie.
    """
    ahead = F.col(time) > latest_now(unit, ahead_ms)
    return rows.withColumn("flaw", F.coalesce("flaw", F.when(ahead, F.lit(Flaw.AHEAD.value))))


def counted_sound(rows: DataFrame, name: str) -> DataFrame:
    """Select the rows without a flaw; observe the number of the other rows as *name*."""
    return sound(rows.observe(name, F.count("flaw").alias("rejected")))


@dataclass(frozen=True, slots=True)
class Settling:
    """The settings of a stream of operations.

    Attributes:
        tick: The tick of the wheel, in *unit*.
        unit: The unit of all times.
        max_lateness_ms: How far a row may lie behind the newest row of its stream in earlier
            batches.
        shards: The number of shards of each stage; fixed for the life of a checkpoint.
        decided: The folder of decided operations; None if the stages share no folder. Then the
            copies of operations that ended by another key stay until their deadline.
    """

    tick: int
    unit: Unit
    max_lateness_ms: int
    shards: int
    decided: Decided | None

    def endings(
        self, operations: DataFrame, events: DataFrame, flushes: DataFrame | None = None
    ) -> DataFrame:
        """Select the columns of `stages.OUTCOME_DDL`.

        The numbers of taken rows, which exclude late ones, are observed under the name "taken".

        Args:
            operations: Rows without a flaw, from `read_operations`.
            events: Rows without a flaw, from `read_events`.
            flushes: The rows of `watermark.flushes`.
        """
        rows = self._timed(self._by_key(operations), "operations", flushes)
        events = events.select(shard_of_key(self.shards), *EVENTS.names)
        packs = rows.unionByName(self._timed(events, "events", flushes))
        match = MatchKeys(self.tick, self.unit, self.decided, self.shards)
        matched = by_shard(packs, match, MATCHED_DDL, event_time="ts")
        is_report = F.col("operations").isNull() & F.col("events").isNull()
        rows = observe_taken(matched, is_report, *TAKEN_COUNTS).where(~is_report)
        decide = DecideOperations(self.tick, self.unit, self.decided)
        return by_shard(rows, decide, OUTCOME_DDL)

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
        return copies.select(shard_of_key(self.shards), *COPIES)

    def _timed(self, rows: DataFrame, kind: str, flushes: DataFrame | None) -> DataFrame:
        """Give packs a watermark; Spark takes the lower of the two streams' watermarks."""
        # One copy of each operation has its keys; events have none.
        counted = "keys" if kind == "operations" else "time"
        packed = rows.mapInArrow(partial(pack_rows, counted=counted), PACK_DDL)
        packs = observe_packs(packed, kind).select(
            "shard", timestamp("latest", self.unit).alias("ts"), F.col("pack").alias(kind)
        )
        if flushes is not None:
            packs = packs.unionByName(flushes, allowMissingColumns=True)
        other = "events" if kind == "operations" else "operations"
        timed = with_watermark(packs, self.max_lateness_ms)
        return timed.withColumn(other, F.lit(None).cast("binary"))
