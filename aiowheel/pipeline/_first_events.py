"""The first event that meets an operation, key by key, as a join in two rounds. Rank 5.

An operation waits in *bins*, stretches of time on each of its keys, and is joined with the events
of the same key and bin. On a key with many events that would be many pairs, of which all but the
first are for nothing. There bins are narrow, and the first round looks into two of them only; what
it leaves open, a few percent as a rule, the second looks up in wide ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

_IN_BIN: Final = 16  # events, in the mean, in a bin of a busy key
_MOST_BUSY: Final = 100_000  # keys, of which every worker holds the list


@dataclass(frozen=True, slots=True)
class TraceSize:
    """What the query must know of a trace before it is planned.

    Attributes:
        operations: How many there are.
        events: How many there are.
        first_event: The time of the first one, or 0.
        last_event: The time of the last one, or -1.
        mean_wait: How long an operation may wait for them in the mean, at least 1.
        any_only: Whether every operation is over with the first key it meets.
    """

    operations: int
    events: int
    first_event: int
    last_event: int
    mean_wait: int
    any_only: bool


def first_events(
    waiting: DataFrame,
    events: DataFrame,
    size: TraceSize,
    keep: Callable[[DataFrame], DataFrame],
) -> DataFrame:
    """Select ``id``, ``key``, ``wanted`` and ``time`` of each key that an operation met.

    Args:
        waiting: ``id``, ``keys``, ``thresholds``, ``wanted``, ``created`` and ``until``, before
            which an event must come.
        events: With the columns of `rules.Event`.
        size: Of the trace.
        keep: Called with frames that are used several times; may persist them.
    """
    busy = F.broadcast(keep(_busy_keys(events, size)))
    wide = F.lit(size.mean_wait).cast("bigint")
    width = F.coalesce("busy_width", wide)
    first_bin, last_bin = _bin(F.col("created"), width), _bin(F.col("until") - 1, width)
    keys = _by_key(waiting).join(busy, "key", how="left")
    looked_into = F.when(F.col("busy_width").isNotNull(), F.least(last_bin, first_bin + 1))
    soon = keep(
        _first(
            keys.withColumn(
                "bin", F.explode(F.sequence(first_bin, F.coalesce(looked_into, last_bin)))
            ),
            events.join(busy, "key", how="left").withColumn("bin", _bin(F.col("time"), width)),
        )
    )
    rest = (
        keys.where(F.col("busy_width").isNotNull() & (last_bin > first_bin + 1))
        .withColumn("created", (first_bin + 2) * F.col("busy_width"))
        .join(soon.select("id", "key"), ["id", "key"], how="left_anti")
    )
    of_busy_keys = events.join(busy, "key", how="left_semi")
    from_wide, to_wide = _bin(F.col("created"), wide), _bin(F.col("until") - 1, wide)
    late = _first(
        rest.withColumn("bin", F.explode(F.sequence(from_wide, to_wide))),
        of_busy_keys.withColumn("bin", _bin(F.col("time"), wide)),
    )
    return soon.unionByName(late)


def _busy_keys(events: DataFrame, size: TraceSize) -> DataFrame:
    """Keys on which an operation of usual length would meet many events: how wide a bin is.

    The order is total: worked out twice, the list is the same.
    """
    span = max(1, size.last_event - size.first_event)
    width = F.greatest(F.lit(1), F.call_function("div", F.lit(span * _IN_BIN), F.col("count")))
    return (
        events.groupBy("key")
        .count()
        .orderBy(F.desc("count"), "key")
        .limit(_MOST_BUSY)
        .select("key", width.cast("bigint").alias("busy_width"))
        .where(F.col("busy_width") * 2 < size.mean_wait)
    )


def _by_key(waiting: DataFrame) -> DataFrame:
    return (
        waiting.where(F.col("until") > F.col("created"))
        .select(
            "id",
            "wanted",
            "created",
            "until",
            F.explode(F.arrays_zip("keys", "thresholds")).alias("watched"),
        )
        .select(
            "id",
            "wanted",
            "created",
            "until",
            F.col("watched.keys").alias("key"),
            F.col("watched.thresholds").alias("least"),
        )
    )


def _first(keys: DataFrame, events: DataFrame) -> DataFrame:
    """Of each key in *keys* the first event in time that meets the threshold."""
    watched = keys.select("id", "wanted", "created", "until", "key", "least", "bin")
    happened = events.select("key", "time", "value", "bin")
    in_time = (F.col("time") >= F.col("created")) & (F.col("time") < F.col("until"))
    # A minimum of integers needs no sorting, one of structs, with the key, would.
    return (
        watched.join(happened, ["key", "bin"], how="inner")
        .where(in_time & (F.col("value") >= F.col("least")))
        .groupBy("id", "key", "wanted")
        .agg(F.min("time").alias("time"))
    )


def _bin(time: Column, width: Column) -> Column:
    return F.call_function("div", time, width)
