"""A load like that of a recorded trace: its rate, its waits, its timeout. Rank 5; needs Spark.

Source: two quantiles give a log-normal distribution. What timed out is known to have taken longer
than its timeout, so the quantiles are those of all operations, not of the completed ones alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.errors import BadInputError
from aiowheel.jobs.wheels.drawn_load import Waits

_ACCURACY = 10_000


@dataclass(frozen=True)
class Fit:
    """What a trace says about the load behind it.

    Attributes:
        operations: Rows of the trace.
        rate: Operations a second, from the first one created to the last.
        timeout_ns: The median timeout of those that have one.
        waits: How long operations take to complete.
        completed: The share that completed, of those that completed or timed out.
    """

    operations: int
    rate: float
    timeout_ns: int
    waits: Waits
    completed: float


def fit_load(trace: DataFrame) -> Fit:
    """Fit a load to a trace; two passes over it.

    Raises:
        BadInputError: Too few operations completed to tell how long they take.
    """
    done, late = F.col("outcome") == "completed", F.col("outcome") == "expired"
    waited = F.col("finished") - F.col("created")
    row = trace.agg(
        F.count("*").alias("operations"),
        F.count_if(done).alias("completed"),
        F.count_if(late).alias("expired"),
        (F.max("created") - F.min("created")).alias("span_ns"),
        F.percentile_approx(F.col("deadline") - F.col("created"), 0.5, _ACCURACY).alias("timeout"),
    ).first()
    if row is None:  # an aggregate without groups has one row, also over nothing
        raise AssertionError
    if row["completed"] < 2 or not row["span_ns"]:
        raise BadInputError(
            f"the trace cannot be fitted: {row['completed']} of {row['operations']} operations "
            "completed, and at least 2 must, at different times"
        )
    share = row["completed"] / (row["completed"] + row["expired"])
    high = min(0.75, 0.9 * share)
    low = high * 2 / 3
    quantiles = (
        trace.where(done)
        .agg(F.percentile_approx(waited, [low / share, high / share], _ACCURACY).alias("at"))
        .first()
    )
    assert quantiles is not None
    least, most = (max(1, at) / 1e9 for at in quantiles["at"])
    if least == most:
        raise BadInputError("the trace cannot be fitted: its operations all took equally long")
    return Fit(
        operations=row["operations"],
        rate=row["operations"] / (row["span_ns"] / 1e9),
        timeout_ns=row["timeout"] or 0,
        waits=Waits.from_quantiles(least, most, low, high),
        completed=share,
    )
