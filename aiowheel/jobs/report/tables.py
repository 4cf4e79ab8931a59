"""The tables of the report, each computed from the trace by one transform. Rank 5.

Source: the columns of `aiowheel.trace.TRACE_COLUMNS`. The transforms run no action and no Python
function, and each ends in the `select` that is its contract. Times and spans are int64 ns. Rows
have no order: a sort in Spark would cost more than the table, and the results are small.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel._arguments import checked_int
from aiowheel.jobs.spark.checked import check_frame

_GROUP = ("purgatory", "kind")
_QUANTILES = {"p50_ns": 0.5, "p90_ns": 0.9, "p99_ns": 0.99, "p999_ns": 0.999}
# percentile_approx returns a value of the data whose rank is off by at most the number of rows
# divided by the accuracy: by no rank up to 10,000 rows, for which 10,000 would be too little.
_ACCURACY = 20_000

# Lower edges 0, 1, 2, 5, 10, ... microseconds up to 1000 seconds: fine enough to show one tick, few
# enough to print.
HISTOGRAM_EDGES_NS = (
    0,
    *(step * 10**power for power in range(3, 12) for step in (1, 2, 5)),
    10**12,
)
WORST_OPERATIONS = 5
HOT_KEYS = 20


def report_tables(trace: DataFrame, *, bucket_ns: int = 1_000_000_000) -> dict[str, DataFrame]:
    """Return the tables of the report on recorded operations, by name.

    The tables are those of `aiowheel report`; the reference of the trace schema lists their
    columns.

    Args:
        trace: A batch DataFrame with the columns of `aiowheel.trace.TRACE_COLUMNS`.
        bucket_ns: Width of the time buckets of ``timeouts_over_time``, at least 1.

    Raises:
        TypeError: *trace* is not a DataFrame of Spark, or *bucket_ns* is not an int.
        ValueError: *bucket_ns* is below 1.

    Cost: one pass over the trace per table.
    """
    check_frame("trace", trace)
    width = checked_int("bucket_ns", bucket_ns, 1, 2**62)
    return {
        "outcomes": outcomes(trace),
        "timeouts_over_time": timeouts_over_time(trace, width),
        "completion_quantiles": completion_quantiles(trace),
        "completion_histogram": completion_histogram(trace),
        "lateness_quantiles": lateness_quantiles(trace),
        "lateness_histogram": lateness_histogram(trace),
        "hot_keys": hot_keys(trace),
        "worst_operations": worst_operations(trace),
    }


def outcomes(trace: DataFrame) -> DataFrame:
    """Count the outcomes of the operations: one row per purgatory and kind.

    `early` counts the `expired` operations that did not time out: closing their purgatory expired
    them before their deadline, or without one.
    """
    is_early = F.col("deadline").isNull() | (F.col("lateness") < 0)
    return (
        trace.groupBy(*_GROUP)
        .agg(
            F.count("*").alias("operations"),
            *(
                F.count_if(F.col("outcome") == outcome).alias(outcome)
                for outcome in ("completed", "expired", "cancelled", "failed")
            ),
            F.count_if((F.col("outcome") == "expired") & is_early).alias("early"),
        )
        .select(
            *_GROUP,
            "operations",
            "completed",
            "expired",
            "cancelled",
            "failed",
            "early",
            _timeout_share(),
        )
    )


def timeouts_over_time(trace: DataFrame, bucket_ns: int) -> DataFrame:
    """Count timeouts: one row per purgatory, kind and bucket of *bucket_ns* in which one ended."""
    start = F.col("finished") - F.pmod("finished", F.lit(bucket_ns))
    return (
        trace.groupBy(*_GROUP, start.alias("bucket_start_ns"))
        .agg(
            F.count("*").alias("operations"),
            F.count_if(F.col("outcome") == "expired").alias("expired"),
        )
        .select(
            *_GROUP,
            "bucket_start_ns",
            F.lit(bucket_ns).cast("bigint").alias("bucket_ns"),
            "operations",
            "expired",
            _timeout_share(),
        )
    )


def completion_quantiles(trace: DataFrame) -> DataFrame:
    """Return how long completed operations had waited: one row per purgatory and kind."""
    return _quantiles(_completed(trace))


def lateness_quantiles(trace: DataFrame) -> DataFrame:
    """Return how long after its deadline a timeout came: one row per purgatory and kind."""
    return _quantiles(_timed_out(trace))


def completion_histogram(trace: DataFrame) -> DataFrame:
    """Count completed operations by waiting time; only ranges with operations have a row."""
    return _histogram(_completed(trace))


def lateness_histogram(trace: DataFrame) -> DataFrame:
    """Count timeouts by lateness; only ranges with timeouts have a row."""
    return _histogram(_timed_out(trace))


def hot_keys(trace: DataFrame) -> DataFrame:
    """Select the keys that most operations watched, at most `HOT_KEYS` for each purgatory."""
    rank = F.row_number().over(
        Window.partitionBy("purgatory").orderBy(F.desc("operations"), F.asc("key"))
    )
    return (
        # An operation may watch several keys of the same text.
        trace.select("purgatory", "outcome", F.explode(F.array_distinct("keys")).alias("key"))
        .groupBy("purgatory", "key")
        .agg(
            F.count("*").alias("operations"),
            F.count_if(F.col("outcome") == "expired").alias("expired"),
        )
        .withColumn("rank", rank)
        .where(F.col("rank") <= HOT_KEYS)
        .select("purgatory", "rank", "key", "operations", "expired", _timeout_share())
    )


def worst_operations(trace: DataFrame) -> DataFrame:
    """Select the latest timeouts, then the longest waits; see `WORST_OPERATIONS`, per kind."""
    order = (
        F.desc_nulls_last("lateness_ns"),
        F.desc("waited_ns"),
        F.asc("run_id"),
        F.asc("operation_id"),
    )
    rank = F.row_number().over(Window.partitionBy(*_GROUP).orderBy(*order))
    return (
        trace.withColumn("waited_ns", F.col("finished") - F.col("created"))
        .withColumn("lateness_ns", F.col("lateness"))
        .withColumn("rank", rank)
        .where(F.col("rank") <= WORST_OPERATIONS)
        .select(
            *_GROUP,
            "rank",
            "run_id",
            "operation_id",
            "keys",
            "outcome",
            "waited_ns",
            "lateness_ns",
            "checks",
        )
    )


def _timeout_share() -> Column:
    return (F.col("expired") / F.col("operations")).alias("timeout_share")


def _completed(trace: DataFrame) -> DataFrame:
    span = (F.col("finished") - F.col("created")).alias("span_ns")
    return trace.where(F.col("outcome") == "completed").select(*_GROUP, span)


def _timed_out(trace: DataFrame) -> DataFrame:
    span = F.col("lateness").alias("span_ns")
    return trace.where(F.col("lateness") >= 0).select(*_GROUP, span)


def _quantiles(spans: DataFrame) -> DataFrame:
    return (
        spans.groupBy(*_GROUP)
        .agg(
            F.count("*").alias("operations"),
            F.percentile_approx("span_ns", list(_QUANTILES.values()), _ACCURACY).alias("at"),
            F.max("span_ns").alias("max_ns"),
        )
        .select(
            *_GROUP,
            "operations",
            *(F.col("at")[place].alias(name) for place, name in enumerate(_QUANTILES)),
            "max_ns",
        )
    )


def _histogram(spans: DataFrame) -> DataFrame:
    uppers = (*HISTOGRAM_EDGES_NS[1:], None)
    # The last condition that holds wins. Only other programs write negative spans: the clocks of
    # loops do not step back.
    place = F.coalesce(
        *(
            F.when(F.col("span_ns") >= lower, F.lit(place))
            for place, lower in reversed(list(enumerate(HISTOGRAM_EDGES_NS)))
        ),
        F.lit(0),
    )
    return (
        spans.groupBy(*_GROUP, place.alias("place"))
        .agg(F.count("*").alias("operations"))
        .select(
            *_GROUP,
            _lookup(HISTOGRAM_EDGES_NS).alias("lower_ns"),
            _lookup(uppers).alias("upper_ns"),
            "operations",
        )
    )


def _lookup(values: tuple[int | None, ...]) -> Column:
    return F.array(*(F.lit(value).cast("bigint") for value in values))[F.col("place")]
