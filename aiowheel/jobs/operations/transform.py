"""The purgatory as a transform of DataFrames: operations and events in, endings out. Rank 5.

The rules are those of `aiowheel.rules`: for a batch in SQL without any Python function, for a
stream by purgatories in virtual time. The transform runs no action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel._arguments import checked_int, safe_repr
from aiowheel._units import delay_to_ns
from aiowheel.errors import AiowheelError
from aiowheel.jobs.operations.first_events import first_events, trace_size
from aiowheel.jobs.operations.frames import (
    EVENT_TYPES,
    OPERATION_TYPES,
    check_events,
    check_operations,
    rejects,
    sound,
)
from aiowheel.jobs.operations.settling import Settling, counted_sound, flawed_if_ahead
from aiowheel.jobs.operations.shard import LONGEST_TICK
from aiowheel.jobs.schemas import OUTCOMES
from aiowheel.jobs.spark.checked import check_frame
from aiowheel.jobs.spark.stream_run import LONGEST_LATENESS, MOST_SHARDS
from aiowheel.jobs.spark.stream_settings import STATE, check_session
from aiowheel.jobs.spark.values import INTEGERS
from aiowheel.jobs.spark.watermark import DAY_MS
from aiowheel.readers import Unit
from aiowheel.readers._formats import checked_member
from aiowheel.rules import COMPLETED, EXPIRED, NEVER

if TYPE_CHECKING:
    from aiowheel._types import Delay

_OPTIONAL: Final = ("thresholds", "mode", "deadline", "value")


@dataclass(frozen=True, slots=True)
class Settled:
    """The result of `settle_operations`; each frame is computed when it is used.

    Attributes:
        endings: One row for each valid operation: ``id: string``, ``outcome: string``
            ("completed", "expired", or null while pending), ``completed_by: string``, the key that
            was met last, and ``at: bigint``. A stream has rows only for ended operations.
        rejects: One row for each invalid row of either table: ``source: string`` ("operations" or
            "events"), ``reason: string`` and ``raw: string``, the row as JSON.
    """

    endings: DataFrame
    rejects: DataFrame

    @property
    def outcomes(self) -> DataFrame:
        """The endings of the operations that completed or expired."""
        return self.endings.where(F.col("outcome").isNotNull())

    @property
    def pending(self) -> DataFrame:
        """The ``id`` of each operation without a deadline that has not met its keys.

        Empty for a stream.
        """
        return self.endings.where(F.col("outcome").isNull()).select("id")


def settle_operations(
    operations: DataFrame,
    events: DataFrame,
    *,
    tick: int = 1,
    unit: str | None = None,
    watermark: Delay | None = None,
    shards: int = 16,
) -> Settled:
    """Return how each operation ends if it waits for its keys in a purgatory.

    An operation completes by events of its keys with ``created <= time < expiry``: at the first
    event in mode "any", when the last key is met in mode "all". Otherwise it expires at the first
    tick at or after its deadline. Every row of each table is either used or rejected; a stream also
    drops late rows.

    Args:
        operations: A batch or a stream with the columns ``id: string``, unique,
            ``keys: array<string>`` and ``created``, and optionally ``deadline`` (null: never),
            ``mode`` (``any`` or ``all``; null: any) and ``thresholds``: for each key, the least
            ``value`` of an event that meets it, or null. Times are integers of one unit, 0 or
            later.
        events: A frame of the same kind and session, with ``key: string``, ``time`` and optionally
            ``value``.
        tick: The tick of the wheel, in the unit of the times, from 1 to 3,600,000,000,000.
        unit: The unit of the times of streams: "s", "ms", "us" or "ns" since 1970. None for
            batches.
        watermark: How far a row of a stream may lie behind the newest one of its table, from 0 to a
            year, in seconds or as a timedelta; later rows are dropped. The streams must not have a
            watermark already, also not in an earlier step: the query would fail after its first
            micro-batch. None for batches.
        shards: For streams, the number of purgatories that share the keys, and of those that share
            the operations, from 1 to 100,000. Fixed for the life of a checkpoint.

    Returns:
        Frames of batches or of streams. A stream emits an outcome, in output mode append, when the
        watermarks of both tables have passed it; operations pending when the stream ends have no
        row. Rows more than one day in the future are rejected: they would advance the watermark
        beyond rows still to come. Each micro-batch of ``endings`` observes, under the names
        "operations" and "events", how many rows of each table were ``rejected``, under
        "operations_packed" and "events_packed" how many of the others were read, and under "taken"
        how many were not late; the last three as sets, see `StreamListener` for the sums. The
        names allow one query the ``endings`` of only one call.

    Raises:
        TypeError: A table is not a DataFrame of Spark, a column has another type, or *unit* is
            missing for streams.
        ValueError: A column is missing, a value is out of range, only one table is a stream, *unit*
            or *watermark* is given for batches, *watermark* is missing for streams, or the session
            of the streams does not keep state in RocksDB, or has another
            ``spark.sql.streaming.multipleWatermarkPolicy`` than ``min``.
        AiowheelError: The streams use Spark Connect in PySpark 4.0, which lacks transformWithState.

    Cost: for batches, two passes over each table for its size, then one join that shuffles each key
    of each operation, the events and the matches; persist ``endings`` to use it several times. For
    streams, two shuffles and two stateful stages, about ten microseconds a row; the state holds the
    pending operations, once per key and once more. An operation in mode "any" that has completed
    stays in the state under its other keys until its deadline, so give it one.
    """
    checked_int("tick", tick, 1, LONGEST_TICK)
    typed_operations = _typed("operations", operations, OPERATION_TYPES)
    typed_events = _typed("events", events, EVENT_TYPES)
    checked_operations = check_operations(typed_operations, F.lit("operations"))
    checked_events = check_events(typed_events, F.lit("events"))
    if operations.isStreaming or events.isStreaming:
        settling = _settling(operations, events, tick, unit, watermark, shards)
        return _settle_streams(checked_operations, checked_events, settling)
    for name, value in (("unit", unit), ("watermark", watermark)):
        if value is not None:
            raise ValueError(f"{name} must be None for batches, got {safe_repr(value)}")
    waiting, happened = sound(checked_operations), sound(checked_events)
    any_only = "mode" not in operations.columns
    return Settled(
        endings(waiting, happened, tick, _size(waiting, happened, tick), any_only=any_only),
        rejects(checked_operations).unionByName(rejects(checked_events)),
    )


def _settling(
    operations: DataFrame,
    events: DataFrame,
    tick: int,
    unit: str | None,
    watermark: Delay | None,
    shards: int,
) -> Settling:
    for name, rows in (("operations", operations), ("events", events)):
        if not rows.isStreaming:
            raise ValueError(f"{name} must be a stream, as the other table is, got a batch")
    if not hasattr(operations.groupBy(), "transformWithStateInPandas"):
        raise AiowheelError(
            "PySpark of this version has no transformWithState over Spark Connect: streams of "
            "operations need a session with a driver"
        )
    known_unit = checked_member("unit", unit, Unit)
    late_ms = -1 if watermark is None else -(-int(delay_to_ns("watermark", watermark)) // 1_000_000)
    if not 0 <= late_ms <= LONGEST_LATENESS * 1_000:
        raise ValueError(
            f"watermark must be from 0 s to a year for streams, got {safe_repr(watermark)}"
        )
    check_session(operations.sparkSession, STATE)
    checked_int("shards", shards, 1, MOST_SHARDS)
    return Settling(tick, known_unit, late_ms, shards, None)


def _settle_streams(operations: DataFrame, events: DataFrame, settling: Settling) -> Settled:
    unit = settling.unit
    operations = flawed_if_ahead(operations, "created", unit, DAY_MS)
    events = flawed_if_ahead(events, "time", unit, DAY_MS)
    ends = settling.endings(
        counted_sound(operations, "operations"), counted_sound(events, "events")
    )
    return Settled(
        ends.where(F.col("outcome").isNotNull()).select(*OUTCOMES.names),
        rejects(operations).unionByName(rejects(events)),
    )


def _typed(argument: str, rows: DataFrame, types: Mapping[str, str]) -> DataFrame:
    """Select the columns of a table; a missing optional column becomes null."""
    check_frame(argument, rows)
    found = dict(rows.dtypes)
    spelled = {name.lower() for name in found}
    columns: list[Column] = []
    for name, kind in types.items():
        # `Deadline` is a misspelled column, not a missing one: without it, nothing would expire.
        got = found.get(name, "void" if name in _OPTIONAL and name not in spelled else "")
        if not got:
            raise ValueError(f"{argument} must have a column {name!r}, got {rows.columns}")
        allowed = {kind.replace("bigint", each) for each in INTEGERS}
        if got not in allowed and got != "void":
            raise TypeError(f"{name} of {argument} must be {kind}, got {got}")
        columns.append((F.col(name) if name in found else F.lit(None)).cast(kind).alias(name))
    return rows.select(*columns)


def _size(operations: DataFrame, events: DataFrame, tick: int) -> Column:
    """Return the size of a trace as a subquery of the query that uses it."""
    count = F.count(F.lit(1)).alias("events")
    first = F.coalesce(F.min("time"), F.lit(0)).alias("first_event")
    last = F.coalesce(F.max("time"), F.lit(-1)).alias("last_event")
    measured = operations.crossJoin(F.broadcast(events.agg(count, first, last)))
    size = trace_size(
        events=F.any_value("events"),
        first_event=F.any_value("first_event"),
        last_event=F.any_value("last_event"),
        mean_wait=mean_wait(F.col("last_event"), tick),
    )
    return measured.agg(size.alias("size")).scalar()


def mean_wait(last_event: Column, tick: int) -> Column:
    """Aggregate the mean time that the keys of operations may wait for events, at least 1."""
    until = F.least(_expiry(tick), last_event + 1)
    wait = F.greatest(until - F.col("created"), F.lit(1))
    # A key has a bin for every few mean waits. Without the weight, few operations with many keys
    # and long waits beside many short ones would have millions of bins.
    keys = F.greatest(F.size("keys"), F.lit(1))
    mean = F.sum(wait.cast("double") * keys) / F.sum(keys)
    return F.coalesce(mean.cast("bigint"), F.lit(1))


def _unchanged(frame: DataFrame) -> DataFrame:
    return frame


def endings(
    operations: DataFrame,
    events: DataFrame,
    tick: int,
    size: Column,
    *,
    any_only: bool,
    keep: Callable[[DataFrame], DataFrame] = _unchanged,
) -> DataFrame:
    """Select ``id``, ``outcome``, ``completed_by`` and ``at`` of every operation.

    All but ``id`` are null for an operation that never ends.

    Args:
        operations: The columns of `rules.Operation`; ids are unique.
        events: The columns of `rules.Event`.
        tick: The tick of the wheel, in the unit of the times, at least 1.
        size: The size of the trace, see `trace_size`.
        any_only: Whether every operation completes with its first key.
        keep: Called with frames that are used several times; it may persist them.

    Cost: a shuffle of every key of every operation, of the events, and of the matches.
    """
    waiting = operations.select(
        "id", "keys", "thresholds", "wanted", "created", _expiry(tick).alias("expiry")
    )
    # Repartitioned here, so that the rows are sorted once, after they come together.
    firsts = first_events(waiting, events, size, keep).repartition("id")
    ends = _first_of_any(firsts) if any_only else _last_of_wanted(firsts)
    completed = F.col("end").isNotNull()
    expired = F.col("expiry") != NEVER
    return ends.select(
        "id",
        F.when(completed, F.lit(COMPLETED)).when(expired, F.lit(EXPIRED)).alias("outcome"),
        F.col("end.key").alias("completed_by"),
        F.coalesce("end.time", F.when(expired, F.col("expiry"))).alias("at"),
    )


def _expiry(tick: int) -> Column:
    """Return `rules.expiry` in SQL."""
    deadline = F.col("deadline")
    return (
        F.when(deadline == NEVER, deadline)
        .when(deadline <= F.col("created"), F.col("created"))
        .otherwise(deadline + F.pmod(-deadline, F.lit(tick).cast("bigint")))
    )


def _first_of_any(firsts: DataFrame) -> DataFrame:
    """Select the first event of each operation, or null, as ``id``, ``expiry`` and ``end``.

    Grouped by the id alone: two operations with one id become one, which the count of rows shows.
    """
    return firsts.groupBy("id").agg(_least("expiry"), F.min(_event()).alias("end"))


def _last_of_wanted(firsts: DataFrame) -> DataFrame:
    """Select the event with which each operation met as many keys as it wants, or null."""
    met = F.sort_array(F.collect_list(_event()))
    return (
        firsts.groupBy("id", "key")
        .agg(_least("expiry"), _least("wanted"), _least("time"))
        .groupBy("id")
        .agg(_least("expiry"), _least("wanted"), met.alias("met"))
        .select("id", "expiry", F.get("met", F.col("wanted") - 1).alias("end"))
    )


def _least(column: str) -> Column:
    return F.min(column).alias(column)


def _event() -> Column:
    return F.when(F.col("time").isNotNull(), F.struct("time", "key"))
