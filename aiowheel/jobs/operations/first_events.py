"""The first event that meets an operation on each key, as a join in two rounds. Rank 5.

An operation is replicated into *bins*, intervals of time on each of its keys, and is joined with
the events of the same key and bin. On a key with many events the join would produce many pairs, of
which only the first is used. So busy keys have narrow bins, and the first round joins only one bin
per operation and key; the second round joins the undecided rest, about a tenth, in wider bins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.jobs.operations.frames import least_value

_KEY: Final = "id", "key", "wanted", "expiry", "least", "rest_from", "leads"
_WAITS_IN_BIN: Final = 4  # width of a bin of other keys, in mean waits
_IN_BIN: Final = 32  # mean number of events in a bin of a busy key
_WIDEST: Final = 2**62  # width of a bin, in the unit of the trace
_SAMPLE: Final = 1_000_000  # events that are sampled for busy keys, if there are more
_MOST_BUSY: Final = 100_000  # keys; every worker holds their list


def trace_size(
    events: Column, first_event: Column, last_event: Column, mean_wait: Column
) -> Column:
    """Return a struct of the properties of a trace that the query needs.

    Args:
        events: The number of events.
        first_event: The time of the first event, or 0.
        last_event: The time of the last event, or -1.
        mean_wait: The mean time that a key of an operation may wait for events, at least 1.
    """
    return F.struct(
        events.alias("events"),
        first_event.alias("first_event"),
        last_event.alias("last_event"),
        mean_wait.alias("mean_wait"),
    )


def first_events(
    waiting: DataFrame,
    events: DataFrame,
    size: Column,
    keep: Callable[[DataFrame], DataFrame],
) -> DataFrame:
    """Select ``id``, ``key``, ``wanted``, ``expiry`` and ``time`` of each key that an event meets.

    A key may have several rows; the least time is when the operation first meets it. Every
    operation has a row; a null ``time`` makes no statement about the key of the row.

    Args:
        waiting: ``id``, ``keys``, ``thresholds``, ``wanted``, ``created`` and ``expiry``, the time
            before which an event must come.
        events: The columns of `rules.Event`.
        size: A `trace_size` of literals, or a subquery with one row.
        keep: Called with frames that are used several times; it may persist them.
    """
    # As a column of the rows, because Spark would run a subquery once per use.
    waiting = waiting.withColumn("size", size)
    events = events.withColumns({"hash": F.xxhash64("key"), "size": size})
    busy = F.broadcast(keep(_busy_keys(events)))
    width = F.coalesce("busy_width", _wide())
    keys = _by_key(waiting).join(busy, "hash", how="left")
    first_bin, last_bin = _bins(width)
    open_end = F.col("busy_width").isNotNull() & (last_bin > first_bin)
    looked_into = F.when(open_end, first_bin).otherwise(last_bin)
    soon = keep(
        _first(
            keys.select(
                "*",
                F.when(open_end, (first_bin + 1) * width).alias("rest_from"),
                F.posexplode(F.sequence(first_bin, looked_into)).alias("of_bins", "bin"),
                # Rows without an event are needed once per operation, to show that the operation
                # exists.
            ).withColumn("leads", (F.col("at") == 0) & (F.col("of_bins") == 0)),
            # Each bin has few events, so a hash table of one partition's events fits into memory.
            events.join(busy, "hash", how="left")
            .withColumn("bin", _bin(F.col("time"), width))
            .hint("shuffle_hash"),
            how="left",
        ).where(F.col("time").isNotNull() | F.col("rest_from").isNotNull() | F.col("leads"))
    )
    rest = soon.where(F.col("time").isNull() & F.col("rest_from").isNotNull()).withColumns(
        {"created": F.col("rest_from"), "size": size}
    )
    mean_wait = F.col("size.mean_wait")
    first_wide, last_wide = _bins(mean_wait)
    late = _first(
        rest.withColumn("bin", F.explode(F.sequence(first_wide, last_wide))),
        events.join(busy, "hash", how="left_semi").withColumn(
            "bin", _bin(F.col("time"), mean_wait)
        ),
        how="inner",
    )
    return soon.unionByName(late)


def _busy_keys(events: DataFrame) -> DataFrame:
    """Select keys on which a typical operation would meet many events, with the width of a bin.

    The keys are represented by their hashes, which are faster to look up; keys with equal hashes
    share a width. The list comes from a sample. The sample and the order are deterministic, so
    that computing the list twice gives the same list.
    """
    span = F.greatest(F.col("size.last_event") - F.col("size.first_event"), F.lit(1))
    one_in = F.greatest(F.call_function("div", "size.events", F.lit(_SAMPLE)), F.lit(1))
    # Floats, because the product may exceed 64 bits.
    in_bin = span.cast("double") * _IN_BIN / one_in
    bin_of_key = F.least(F.col("in_bin") / F.col("count"), F.lit(float(_WIDEST)))
    return (
        events.where(F.pmod(F.xxhash64("hash", "time"), one_in) == 0)
        .groupBy("hash")
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.any_value(in_bin).alias("in_bin"),
            F.any_value(_wide()).alias("wide"),
        )
        .orderBy(F.desc("count"), "hash")
        .limit(_MOST_BUSY)
        .withColumn("busy_width", F.greatest(F.lit(1), bin_of_key).cast("bigint"))
        .where(F.col("busy_width") < F.call_function("div", "wide", F.lit(2)))
        .select("hash", "busy_width")
    )


def _wide() -> Column:
    return F.least(F.col("size.mean_wait"), F.lit(_WIDEST // _WAITS_IN_BIN)) * _WAITS_IN_BIN


def _by_key(waiting: DataFrame) -> DataFrame:
    operation = "id", "wanted", "created", "expiry", "size"
    return waiting.select(*operation, "thresholds", F.posexplode("keys").alias("at", "key")).select(
        *operation,
        "at",
        "key",
        F.xxhash64("key").alias("hash"),
        least_value(F.col("at")).alias("least"),
    )


def _first(keys: DataFrame, events: DataFrame, how: str) -> DataFrame:
    """Select, for each key in *keys*, the first event that meets the threshold."""
    spot = F.xxhash64("key", "bin").alias("spot")
    watched = keys.select(spot, *_KEY, "created")
    happened = events.select(spot, F.col("key").alias("of"), "time", "value")
    # A join by one integer is the fastest. Rows of other keys with the same hash are filtered here,
    # by two inequalities because Spark would turn an equality into a join key.
    same_key = (F.col("of") >= F.col("key")) & (F.col("of") <= F.col("key"))
    in_time = (F.col("time") >= F.col("created")) & (F.col("time") < F.col("expiry"))
    met = same_key & in_time & (F.col("value") >= F.col("least"))
    # The minimum of integers needs no sort, unlike the minimum of structs that include the key; and
    # grouping by spot, the join key, avoids a shuffle.
    return (
        watched.join(happened, (watched["spot"] == happened["spot"]) & met, how)
        .groupBy(watched["spot"], *_KEY)
        .agg(F.min("time").alias("time"))
        .drop("spot")
    )


def _bins(width: Column) -> tuple[Column, Column]:
    """Return the first and the last bin in which an operation waits; at least one bin."""
    until = F.least(F.col("expiry"), F.col("size.last_event") + 1)
    first = _bin(F.col("created"), width)
    return first, F.greatest(first, _bin(until - 1, width))


def _bin(time: Column, width: Column) -> Column:
    return F.call_function("div", time, width)
