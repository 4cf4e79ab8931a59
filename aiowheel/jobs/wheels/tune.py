"""The tuning job: the tick and wheel size with the lowest cost for a trace. Rank 5; needs Spark.

Source: every candidate wheel is driven through the recorded operations, one wheel per run of the
trace, and the cost of its work is computed. A wheel fires less than a tick late under any load, so
the lateness bound is a bound on the tick.

A long run is divided into stretches of time, which are computed separately. A stretch gets its
operations and those that are pending at its start. Its wheel first arms the latter, at their
creation times, and then equals the wheel of the whole run; work before the start is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name
from pyspark.sql.pandas.types import from_arrow_schema

from aiowheel._arguments import checked_int, safe_repr
from aiowheel._units import delay_to_ns
from aiowheel.errors import BadInputError
from aiowheel.jobs.spark.checked import check_frame
from aiowheel.jobs.spark.session import parallelism
from aiowheel.jobs.wheels.checked import check_list, check_wheel_sizes
from aiowheel.jobs.wheels.feed import LONGEST_NS, Feeding
from aiowheel.jobs.wheels.recorded_load import COLUMNS, RecordedLoad
from aiowheel.jobs.wheels.run import WheelRun

if TYPE_CHECKING:
    from aiowheel._types import Delay

#: Nanoseconds of CPU, measured with the compiled wheel on a machine with two cores. Only the ratios
#: matter: a wake-up of an idle event loop costs as much as some hundred timers.
ARM_NS: Final = 150
CASCADE_NS: Final = 50
WAKE_UP_NS: Final = 50_000
#: The least tick that a timer accepts, because the result is a line of code for a timer.
LEAST_TICK_NS: Final = 1_000
LONGEST_TICK_NS: Final = 3_600_000_000_000
#: Costs within this factor count as equal: then the wheel with fewer buckets is better.
_AS_CHEAP: Final = 1.02
WHEEL_SIZES: Final = (16, 64, 256, 1_024, 4_096)

_STRETCH = ("number", "origin", "width", "count")
_COUNTS = ("operations", "expired", "inserts", "cascaded", "wake_ups", "late_sum_ns")
_PEAKS = ("late_max_ns", "levels", "peak_pending", "span_ns")
_NAMES = ("tick_ns", "wheel_size", *_COUNTS, *_PEAKS)
_RUNS = pa.schema([pa.field(name, pa.int64()) for name in _NAMES])
#: One row per candidate: counts summed over the runs, maxima of the other columns, and the cost.
CANDIDATES = pa.schema([*_RUNS, pa.field("cost_ns", pa.float64()), pa.field("allowed", pa.bool_())])


@dataclass(frozen=True)
class Tuning:
    """The result of the tuning job.

    Attributes:
        candidates: As `CANDIDATES`: the best first, then those within the bound by cost.
        operations: Number of operations of the trace that armed a timeout.
    """

    candidates: pa.Table
    operations: int

    @classmethod
    def of(cls, candidates: pa.Table) -> Tuning:
        """Sort the candidates that `tune` returned.

        Raises:
            BadInputError: No operation armed a timeout.
        """
        rows = candidates.to_pylist()
        if not rows or not rows[0]["operations"]:
            raise BadInputError("no operation of the trace armed a timeout: nothing to tune")
        rows.sort(key=_rank)
        _prefer_small(rows)
        return cls(pa.Table.from_pylist(rows, CANDIDATES), rows[0]["operations"])

    @property
    def best(self) -> dict[str, Any]:
        """The smallest wheel of those within the bound and within 2 % of the lowest cost."""
        row: dict[str, Any] = self.candidates.slice(0, 1).to_pylist()[0]
        return row

    @property
    def line(self) -> str:
        """The line of code to paste."""
        best = self.best
        return f"Timer(tick={best['tick_ns'] / 1e9:.15g}, wheel_size={best['wheel_size']})"


def candidate_ticks(max_lateness_ns: int) -> list[int]:
    """Return the bound, finer and rounder ticks, and two above it to show the cost of the bound."""
    parts = (100, 50, 20, 10, 5, 2, 1)
    ticks = [max_lateness_ns // part for part in parts]
    ticks += [2 * max_lateness_ns, 5 * max_lateness_ns]
    return [tick for tick in ticks if LEAST_TICK_NS <= tick <= LONGEST_TICK_NS]


def tune(
    trace: DataFrame,
    *,
    max_lateness: Delay,
    ticks: Sequence[Delay] | None = None,
    wheel_sizes: Sequence[int] = WHEEL_SIZES,
    rows_per_stretch: int = 100_000,
) -> DataFrame:
    """Return the cost of each combination of tick and wheel size for a trace.

    Args:
        trace: A batch DataFrame with the columns of `aiowheel.trace.TRACE_COLUMNS`.
        max_lateness: How much later than its deadline the wheel may fire a timeout, in seconds or
            as a timedelta, from a microsecond to an hour.
        ticks: The ticks to try, in the same form; default: parts of *max_lateness*, and two above.
        wheel_sizes: The wheel sizes to try, each from 2 to 2**24.
        rows_per_stretch: The approximate number of operations that a worker processes at a time, at
            least 1; no result depends on it.

    Returns:
        One row per combination, in no order: ``tick_ns`` and ``wheel_size``; the counts
        ``operations``, ``expired``, ``inserts``, ``cascaded``, ``wake_ups`` and ``late_sum_ns``;
        the maxima ``late_max_ns``, ``levels``, ``peak_pending`` and ``span_ns``; ``cost_ns``, CPU
        nanoseconds per operation, and ``allowed``, whether the tick is within *max_lateness*.

    Raises:
        TypeError: An argument has another type.
        BadInputError: A value is out of its range, or no tick is within the bound.
        ValueError: *rows_per_stretch* is out of range.

    Cost: two passes over the trace, and about 0.3 us of CPU per operation and candidate. A worker
    holds four columns of a stretch of a run: on average 100,000 operations, or the number pending
    at a time if that is greater, and at most twice that with those pending at its start.
    """
    check_frame("trace", trace)
    candidates = candidates_of(max_lateness, ticks, wheel_sizes)
    checked_int("rows_per_stretch", rows_per_stretch, 1, 2**31 - 1)
    bound_ns = delay_to_ns("max lateness", max_lateness)
    spark = trace.sparkSession
    groups = _grouped(candidates, parallelism(spark))

    def weigh(key: tuple[Any, ...], rows: pa.Table) -> pa.Table:
        _, place, number, origin, width, count = (part.as_py() for part in key)
        stretch = Stretch(origin, number * width, None if number + 1 == count else width)
        return weigh_stretch(rows, groups[place], stretch)

    places = spark.range(len(groups)).select(F.col("id").cast("int").alias("place"))
    widest = max(tick for tick, _ in candidates)
    found = (
        _in_stretches(trace.select("run_id", *COLUMNS), widest, rows_per_stretch)
        .crossJoin(F.broadcast(places))
        .groupBy("run_id", "place", *_STRETCH)
        .applyInArrow(weigh, from_arrow_schema(_RUNS))
        .groupBy("tick_ns", "wheel_size")
        .agg(
            *(F.sum(name).alias(name) for name in _COUNTS),
            *(F.max(name).alias(name) for name in _PEAKS),
        )
    )
    allowed = (F.col("tick_ns") <= bound_ns).alias("allowed")
    return found.select(*_NAMES, _cost_ns().alias("cost_ns"), allowed)


def candidates_of(
    max_lateness: Delay, ticks: Sequence[Delay] | None, wheel_sizes: Sequence[int]
) -> list[tuple[int, int]]:
    """Return pairs of a tick in nanoseconds and a wheel size, without duplicates; see `tune`.

    Raises:
        TypeError, BadInputError: See `tune`.
    """
    check_list("wheel_sizes", wheel_sizes)
    if ticks is not None:
        check_list("ticks", ticks)
    bound_ns = _checked_ns("max lateness", max_lateness)
    given = [_checked_ns("tick", tick) for tick in ticks or ()]
    ticks_ns = sorted(set(given or candidate_ticks(bound_ns)))
    if not wheel_sizes:
        raise BadInputError("wheel_sizes must be one or more sizes, got none")
    check_wheel_sizes(wheel_sizes)
    if ticks_ns[0] > bound_ns:
        raise BadInputError(
            f"no tick is within the lateness bound of {bound_ns / 1e9:g} s: "
            f"the finest is {ticks_ns[0] / 1e9:g} s"
        )
    return list(product(ticks_ns, sorted(set(wheel_sizes))))


def _checked_ns(name: str, delay: Delay) -> int:
    """Return a duration in nanoseconds if it is a legal tick of a timer."""
    try:
        nanoseconds = int(delay_to_ns(name, delay))
    except ValueError:
        nanoseconds = 0
    if not LEAST_TICK_NS <= nanoseconds <= LONGEST_TICK_NS:
        raise BadInputError(f"{name} must be from 1e-06 to 3600 s, got {safe_repr(delay)}")
    return nanoseconds


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time interval of a run.

    Attributes:
        origin: The creation of the run's first operation; the wheels start there.
        begin: The start of the stretch, in nanoseconds since the origin.
        width: The length in nanoseconds; None for the last stretch, which ends with its timeouts.
    """

    origin: int
    begin: int
    width: int | None


def _in_stretches(trace: DataFrame, widest_ns: int, rows: int) -> DataFrame:
    """Select the operations that armed a timeout, once per stretch in which each is pending."""
    created, deadline, finished = F.col("created"), F.col("deadline"), F.col("finished")
    timed_out = (F.col("outcome") == "expired") & (finished >= deadline)
    longest = created + F.least(deadline - created, F.lit(LONGEST_NS)) + F.lit(widest_ns)
    leaves = F.when(timed_out, longest).otherwise(F.least(finished, longest))
    leaves = F.greatest(leaves, created)  # a deadline may be before the creation
    armed = trace.where((finished > created) & deadline.isNotNull()).withColumn("leaves", leaves)
    span = F.max("created") - F.min("created") + F.lit(1)
    mean_pending = F.sum((F.col("leaves") - created).cast("double")) / span
    wanted = F.ceil(F.count(F.lit(1)) / F.greatest(mean_pending, F.lit(float(rows))))
    runs = armed.groupBy("run_id").agg(
        F.min("created").alias("origin"), span.alias("span"), wanted.alias("wanted")
    )
    width = F.call_function("div", F.col("span") - 1, F.col("wanted")) + 1
    runs = runs.withColumn("width", width).select(
        "run_id",
        "origin",
        "width",
        (F.call_function("div", F.col("span") - 1, F.col("width")) + 1).alias("count"),
    )

    def number_of(time: Column) -> Column:
        return F.call_function("div", time - F.col("origin"), F.col("width"))

    last = F.least(number_of(F.col("leaves")), F.col("count") - 1)
    numbers = F.sequence(number_of(created), last)
    placed = armed.join(F.broadcast(runs), "run_id").withColumn("number", F.explode(numbers))
    return placed.select("run_id", *COLUMNS, *_STRETCH)


def weigh_stretch(
    rows: pa.Table, candidates: Sequence[tuple[int, int]], stretch: Stretch
) -> pa.Table:
    """Drive the candidates, pairs of tick and wheel size, through a stretch of a run.

    Args:
        rows: The operations that are created in the stretch or pending at its start.
        candidates: The wheels to try.
        stretch: The interval of the run.
    """
    load = RecordedLoad.from_table(rows, origin=stretch.origin)
    widest = max(tick for tick, _ in candidates)
    load.check_range(widest)
    wheels = [WheelRun(tick, wheel_size) for tick, wheel_size in candidates]
    feeding = Feeding(wheels, widest)
    first = int(np.searchsorted(load.created, stretch.begin))
    for chunk in load.chunks(0, first):
        feeding.feed(chunk)
    feeding.advance(stretch.begin)
    before = [_counts_of(wheel) for wheel in wheels]
    for chunk in load.chunks(first):
        feeding.feed(chunk)
    if stretch.width is None:
        feeding.finish()
    else:
        feeding.advance(stretch.begin + stretch.width)
    answers = [
        {
            "tick_ns": tick,
            "wheel_size": wheel_size,
            "operations": len(load) - first,
            **{name: count - then[name] for name, count in _counts_of(wheel).items()},
            "late_max_ns": wheel.lateness.maximum_ns,
            "levels": wheel.levels,
            "peak_pending": wheel.peak_pending,
            "span_ns": load.span_ns,
        }
        for wheel, then, (tick, wheel_size) in zip(wheels, before, candidates, strict=True)
    ]
    return pa.Table.from_pylist(answers, _RUNS)


def _counts_of(wheel: WheelRun) -> dict[str, int]:
    return {
        "expired": wheel.expired,
        "inserts": wheel.inserts,
        "cascaded": wheel.cascaded,
        "wake_ups": wheel.wake_ups,
        "late_sum_ns": wheel.lateness.total_ns,
    }


def _grouped(candidates: list[tuple[int, int]], hands: int) -> list[list[tuple[int, int]]]:
    """Divide the candidates into one group per core: the operations are sorted once per group."""
    return [candidates[hand::hands] for hand in range(min(hands, len(candidates)))]


def _cost_ns() -> Column:
    """CPU nanoseconds per operation."""
    armed = F.col("inserts") - F.col("cascaded")
    work = armed * ARM_NS + F.col("cascaded") * CASCADE_NS + F.col("wake_ups") * WAKE_UP_NS
    return work / F.greatest(F.col("operations"), F.lit(1))


def _rank(row: dict[str, Any]) -> tuple[bool, float, int]:
    return not row["allowed"], row["cost_ns"], row["wheel_size"]


def _prefer_small(rows: list[dict[str, Any]]) -> None:
    """Move the row with the fewest buckets of those that cost as little as the first to the top."""
    most = rows[0]["cost_ns"] * _AS_CHEAP
    as_cheap = [row for row in rows if row["allowed"] and row["cost_ns"] <= most]
    if as_cheap:
        best = min(as_cheap, key=_buckets)
        rows.remove(best)
        rows.insert(0, best)


def _buckets(row: dict[str, Any]) -> int:
    return int(row["levels"] * row["wheel_size"])
