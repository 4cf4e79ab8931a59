"""A load like that of a recorded trace: its rate, its waits, its timeout. Rank 5; needs Spark.

Source: two quantiles give a log-normal distribution. What timed out took longer than its timeout,
or would never have completed: which of the two, the tail of the distribution says. If fewer
operations take longer than the timeout than timed out, the others never complete.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.errors import BadInputError
from aiowheel.jobs.wheels.drawn_load import Waits

_ACCURACY = 10_000
_STANDARD_ERRORS = 3  # a difference below it is chance
_PRECISION = 1e-9


@dataclass(frozen=True)
class Fit:
    """What a trace says about the load behind it.

    Attributes:
        operations: Rows of the trace.
        rate: Operations a second, over the time in which at least one run was recorded.
        timeout_ns: The median timeout of those that have one.
        waits: How long operations take to complete, and which share never does.
        completed: The share that completed, of those that completed or timed out.
    """

    operations: int
    rate: float
    timeout_ns: int
    waits: Waits
    completed: float


def fit_load(trace: DataFrame) -> Fit:
    """Fit a load to a trace; three passes over it.

    Raises:
        BadInputError: Too few operations completed to tell how long they take, or no run has
            operations at different times.
    """
    # What closing its purgatory expired ahead of its deadline did not time out.
    done, late = F.col("outcome") == "completed", F.col("lateness") >= 0
    waited = F.col("finished") - F.col("created")
    row = trace.agg(
        F.count("*").alias("operations"),
        F.count_if(done).alias("completed"),
        F.count_if(late).alias("expired"),
        F.percentile_approx(F.col("deadline") - F.col("created"), 0.5, _ACCURACY).alias("timeout"),
    ).first()
    if row is None:  # an aggregate without groups has one row, also over nothing
        raise AssertionError
    gaps, span_ns = _recorded(trace)
    if row["completed"] < 2 or not span_ns:
        raise BadInputError(
            f"the trace cannot be fitted: {row['completed']} of {row['operations']} operations "
            "completed, and at least 2 must, at different times of a run"
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
    """Find the waits of which *completed* end within the timeout and *timed_out* do not.

    Args:
        seconds: Two quantiles of the completed operations.
        shares: Of the completed operations, how many took at most these seconds.
        completed: How many completed.
        timed_out: How many timed out.
        timeout: In seconds.
    """
    total = completed + timed_out
    share = completed / total

    def waits_if(within: float) -> Waits:
        """The waits, if a share of *within* of those that ever complete does so in time."""
        return Waits.from_quantiles(*seconds, *(within * part for part in shares))

    waits = waits_if(share)
    chance = _STANDARD_ERRORS * math.sqrt(share * (1 - share) / total)
    if not timed_out or waits.beyond(timeout) >= 1 - share - chance:
        return waits
    # The more never complete, the more of the others do in time: the share at which the two agree.
    least, most = share, 1.0
    while most - least > _PRECISION:
        within = (least + most) / 2
        if 1 - waits_if(within).beyond(timeout) > within:
            least = within
        else:
            most = within
    return replace(waits_if(least), never=1 - share / least)


def _recorded(trace: DataFrame) -> tuple[int, int]:
    """Count the gaps between operations of a run, and the nanoseconds that they fill.

    Runs that overlap are one: several processes that were recorded at the same time.
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
