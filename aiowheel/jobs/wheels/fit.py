"""Fitting a load to a recorded trace: its rate, waits and timeout. Rank 5; needs Spark.

Source: two quantiles define a log-normal distribution. An operation that timed out would have taken
longer than its timeout or would never have completed. The tail of the distribution gives the number
of the former; the rest of the timed out operations never complete.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.errors import BadInputError
from aiowheel.jobs.wheels.drawn_load import Waits

_ACCURACY = 10_000
_STANDARD_ERRORS = 3  # a smaller difference is regarded as chance
_PRECISION = 1e-9


@dataclass(frozen=True)
class Fit:
    """The properties of the load of a trace.

    Attributes:
        operations: Number of rows of the trace.
        rate: Operations per second, over the time in which at least one run was recorded.
        timeout_ns: The median timeout of the operations that have one.
        waits: How long operations take to complete, and the share that never does.
        completed: The completed share of the operations that completed or timed out.
    """

    operations: int
    rate: float
    timeout_ns: int
    waits: Waits
    completed: float


def fit_load(trace: DataFrame) -> Fit:
    """Fit a load to a trace; three passes over it.

    Raises:
        BadInputError: Too few operations completed for a distribution, or no run has operations at
            different times.
    """
    # Operations expired early by closing their purgatory did not time out.
    done, late = F.col("outcome") == "completed", F.col("lateness") >= 0
    waited = F.col("finished") - F.col("created")
    (row,) = trace.agg(
        F.count("*").alias("operations"),
        F.count_if(done).alias("completed"),
        F.count_if(late).alias("expired"),
        F.percentile_approx(F.col("deadline") - F.col("created"), 0.5, _ACCURACY).alias("timeout"),
    ).collect()
    gaps, span_ns = _recorded(trace)
    if row["completed"] < 2 or not span_ns:
        raise BadInputError(
            f"the trace cannot be fitted: {row['completed']} of {row['operations']} operations "
            "completed, and at least 2 must, at different times of a run"
        )
    share = row["completed"] / (row["completed"] + row["expired"])
    high = min(0.75, 0.9 * share)
    low = high * 2 / 3
    at = F.percentile_approx(waited, [low / share, high / share], _ACCURACY).alias("at")
    (quantiles,) = trace.where(done).agg(at).collect()
    least, most = (max(1, at) / 1e9 for at in quantiles["at"])
    if least == most:
        raise BadInputError("the trace cannot be fitted: its operations all took equally long")
    return Fit(
        operations=row["operations"],
        rate=gaps / (span_ns / 1e9),
        timeout_ns=row["timeout"] or 0,
        waits=fit_waits(
            (least, most),
            (low / share, high / share),
            completed=row["completed"],
            timed_out=row["expired"],
            timeout=max(1, row["timeout"] or 0) / 1e9,
        ),
        completed=share,
    )


def fit_waits(
    seconds: tuple[float, float],
    shares: tuple[float, float],
    *,
    completed: int,
    timed_out: int,
    timeout: float,
) -> Waits:
    """Find waits in which *completed* operations end within the timeout and *timed_out* do not.

    Args:
        seconds: Two quantiles of the completed operations.
        shares: The shares of the completed operations that took at most these seconds.
        completed: Number of completed operations.
        timed_out: Number of operations that timed out.
        timeout: In seconds.
    """
    total = completed + timed_out
    share = completed / total

    def waits_if(within: float) -> Waits:
        """Return the waits if the share *within* of the completing operations is in time."""
        return Waits.from_quantiles(*seconds, *(within * part for part in shares))

    waits = waits_if(share)
    chance = _STANDARD_ERRORS * math.sqrt(share * (1 - share) / total)
    if not timed_out or waits.beyond(timeout) >= 1 - share - chance:
        return waits
    # A larger share that never completes means a larger share in time of the others: bisect.
    least, most = share, 1.0
    while most - least > _PRECISION:
        within = (least + most) / 2
        if 1 - waits_if(within).beyond(timeout) > within:
            least = within
        else:
            most = within
    return replace(waits_if(least), never=1 - share / least)


def _recorded(trace: DataFrame) -> tuple[int, int]:
    """Count the gaps between operations of a run, and the nanoseconds that they cover.

    Runs that overlap in time count as one: several processes recorded at the same time.
    """
    created = F.col("created")
    runs = trace.groupBy("run_id").agg(
        F.min(created).alias("first"), F.max(created).alias("last"), F.count("*").alias("rows")
    )
    gaps = span_ns = 0
    until: int | None = None
    for run in sorted(runs.collect(), key=lambda run: run["first"]):
        gaps += run["rows"]
        if until is None or run["first"] > until:
            gaps -= 1
            until = run["first"]
        span_ns += max(0, run["last"] - until)
        until = max(until, run["last"])
    return gaps, span_ns
