"""The first event that meets an operation, key by key, as a join in two rounds. Rank 5.

An operation waits in *bins*, stretches of time on each of its keys, and is joined with the events
of the same key and bin. On a key with many events that would be many pairs, of which all but the
first are for nothing. There bins are narrow, and the first round looks into one of them only; what
it leaves open, a tenth as a rule, the second looks up in wider ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.jobs.operations.frames import least_value

_KEY: Final = "id", "key", "wanted", "expiry", "least", "rest_from", "leads"
_WAITS_IN_BIN: Final = 4  # how long an operation waits, in a bin of another key
_IN_BIN: Final = 32  # events, in the mean, in a bin of a busy key
_WIDEST: Final = 2**62  # a bin, in the unit of the trace
_SAMPLE: Final = 1_000_000  # events in which to look for busy keys, if there are more
_MOST_BUSY: Final = 100_000  # keys, of which every worker holds the list


def trace_size(
    events: Column, first_event: Column, last_event: Column, mean_wait: Column
) -> Column:
    """Make a struct of what the query must know of a trace.

    Args:
        events: How many there are.
        first_event: The time of the first one, or 0.
        last_event: The time of the last one, or -1.
        mean_wait: How long an operation may wait for them in the mean, at least 1.
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
    """Select ``id``, ``key``, ``wanted``, ``expiry`` and ``time`` of each key an operation meets.

    A key may come several times: the least of its times is when the operation first meets it. Every
    operation comes; where ``time`` is null, nothing is said of the key.

    Args:
        waiting: ``id``, ``keys``, ``thresholds``, ``wanted``, ``created`` and ``expiry``, before
            which an event must come.
        events: With the columns of `rules.Event`.
        size: A `trace_size`: of literals, or a subquery with one row.
        keep: Called with frames that are used several times; may persist them.
    """
    # As a column of the rows: Spark plans a subquery at each place where it stands.
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
                # Of what meets nothing only this is needed: it shows that the operation was there.
            ).withColumn("leads", (F.col("at") == 0) & (F.col("of_bins") == 0)),
            # Each bin has few events, so a table of a share of them fits into memory.
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
    """Keys on which an operation of usual length would meet many events: how wide a bin is.

    By their hashes, which are faster to look up; keys that share one have bins of one width.
    A sample is enough. It and the order are certain: worked out twice, the list is the same.
    """
    span = F.greatest(F.col("size.last_event") - F.col("size.first_event"), F.lit(1))
    one_in = F.greatest(F.call_function("div", "size.events", F.lit(_SAMPLE)), F.lit(1))
    # As floats: the product may exceed 64 bits.
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
    """Of each key in *keys* the first event in time that meets the threshold."""
    spot = F.xxhash64("key", "bin").alias("spot")
    watched = keys.select(spot, *_KEY, "created")
    happened = events.select(spot, F.col("key").alias("of"), "time", "value")
    # Tables by one integer are the fastest. What else falls on the same one is sorted out here, in
    # words that Spark does not take for an equality to join by.
    same_key = (F.col("of") >= F.col("key")) & (F.col("of") <= F.col("key"))
    in_time = (F.col("time") >= F.col("created")) & (F.col("time") < F.col("expiry"))
    met = same_key & in_time & (F.col("value") >= F.col("least"))
    # A minimum of integers needs no sorting, one of structs, with the key, would; and by spot, as
    # the join has them, the rows need not move.
    return (
        watched.join(happened, (watched["spot"] == happened["spot"]) & met, how)
        .groupBy(watched["spot"], *_KEY)
        .agg(F.min("time").alias("time"))
        .drop("spot")
    )


def _bins(width: Column) -> tuple[Column, Column]:
    """The first and the last bin in which an operation waits; one at least."""
    until = F.least(F.col("expiry"), F.col("size.last_event") + 1)
    first = _bin(F.col("created"), width)
    return first, F.greatest(first, _bin(until - 1, width))


def _bin(time: Column, width: Column) -> Column:
    return F.call_function("div", time, width)
