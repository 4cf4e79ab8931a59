"""The simulation job: the work of a wheel under a drawn load. Rank 5; needs Spark.

Source: every shard of the load drives its own wheel, the same code that runs behind a timer,
through virtual time. A shard is data, so the tables are the same on any number of partitions.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name
from pyspark.sql.pandas.types import from_arrow_schema

from aiowheel._arguments import safe_repr
from aiowheel.errors import BadInputError
from aiowheel.jobs.spark.checked import check_frame
from aiowheel.jobs.spark.session import parallelism
from aiowheel.jobs.spark.values import INTEGERS
from aiowheel.jobs.wheels.checked import check_wheel_sizes, checked_input_int
from aiowheel.jobs.wheels.drawn_load import Waits, draw
from aiowheel.jobs.wheels.feed import LONGEST_NS, feed
from aiowheel.jobs.wheels.run import WheelRun
from aiowheel.wheel._wheel import LIMIT

_PARTITIONS_A_CORE = 4
_MOST_PARTITIONS = 2**31 - 1
_SETTING: dict[str, pa.DataType] = {
    "tick_ns": pa.int64(),
    "wheel_size": pa.int32(),
    "timeout_ns": pa.int64(),
    "rate": pa.float64(),
}
_COUNTS = ("operations", "completed", "expired", "inserts", "cascaded", "wake_ups", "late_sum_ns")
_PEAKS = ("levels", "peak_pending", "late_max_ns", "span_ns")
_COSTS = ("cpu_ns", "peak_bytes")
#: One row per setting and shard, without the costs of the simulation.
SHARDS = pa.schema(
    {**_SETTING, "shard": pa.int32(), **dict.fromkeys((*_COUNTS, *_PEAKS), pa.int64())}
)
#: One row per setting: counts are summed over the shards, other columns are maxima.
SETTINGS = pa.schema({**_SETTING, **dict.fromkeys((*_COUNTS, *_PEAKS), pa.int64())})
_ANSWERS = pa.schema([*SHARDS, *(pa.field(name, pa.int64()) for name in _COSTS)])


@dataclass(frozen=True)
class Load:
    """The operations that every setting gets; their rate and timeout belong to the setting.

    Attributes:
        operations: Number of operations, at least 1.
        waits: How long operations take to complete.
        seed: The seed of the load, from 0 to 2**62.
        shards: Number of wheels that share the load, like the nodes of a cluster, at least 1.
    """

    operations: int
    waits: Waits
    seed: int = 1
    shards: int = 16

    def operations_of(self, shard: int) -> int:
        """Return the number of operations of a shard."""
        each, more = divmod(self.operations, self.shards)
        return each + (shard < more)

    def check(self) -> None:
        """Check the types and ranges of the attributes.

        Raises:
            TypeError: A number or the waits have another type.
            BadInputError: The text holds the value and the legal range.
        """
        operations = checked_input_int("operations", self.operations, 1, 10**12)
        checked_input_int("shards", self.shards, 1, min(operations, 10**6))
        checked_input_int("seed", self.seed, 0, 2**62)
        if not isinstance(self.waits, Waits):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
            raise TypeError(f"waits must be a Waits, got {safe_repr(self.waits)}")

    def check_setting(self, tick_ns: int, wheel_size: int, timeout_ns: int, rate: float) -> None:
        """Check a setting against the range of a wheel, which ends 73 years after 0.

        Raises:
            TypeError: The wheel size has another type.
            BadInputError: The text holds the value and the legal range.
        """
        check_wheel_sizes([wheel_size])
        _check_range("tick", tick_ns / 1e9, 1e-9, LONGEST_NS / 1e9)
        _check_range("timeout", timeout_ns / 1e9, 1e-9, LONGEST_NS / 1e9)
        each = math.ceil(self.operations / self.shards)
        # A safe bound of the last arrival: ten standard deviations, and for small shards 50 gaps.
        gaps = each + 10 * math.sqrt(each) + 50
        least = self.shards * gaps / max(1.0, (LIMIT - timeout_ns - tick_ns) / 1e9)
        _check_range("rate", rate, least, 1e9)


@dataclass(frozen=True)
class Sweep:
    """The settings to simulate: every combination of the four lists, under one load.

    Attributes:
        load: The operations of each setting.
        ticks_ns: Widths of a bucket, each at least 1.
        wheel_sizes: Buckets per level, each at least 2.
        timeouts_ns: Times from arrival to deadline, each at least 1.
        rates: Arrivals per second; the last arrival must be within 73 years less timeout and tick.
    """

    load: Load
    ticks_ns: Sequence[int]
    wheel_sizes: Sequence[int]
    timeouts_ns: Sequence[int]
    rates: Sequence[float]

    def settings(self) -> pa.Table:
        """Return one row per setting."""
        columns = zip(*self._combinations(), strict=True)
        kinds = _SETTING.values()
        arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
        return pa.table(arrays, names=[*_SETTING])

    def check(self) -> None:
        """Check the load and each setting.

        Raises:
            TypeError, BadInputError: See `Load.check` and `Load.check_setting`.
        """
        self.load.check()
        for setting in self._combinations():
            self.load.check_setting(*setting)

    def _combinations(self) -> Iterator[tuple[Any, ...]]:
        axes = self.ticks_ns, self.wheel_sizes, self.timeouts_ns, self.rates
        return product(*map(dict.fromkeys, axes))  # dict.fromkeys removes duplicate values


@dataclass(frozen=True)
class SimulateResult:
    """The result of the simulation, and its cost.

    Attributes:
        settings: One row per setting, as `SETTINGS`.
        shards: One row per setting and shard, as `SHARDS`.
        operations: Number of simulated operations, over all settings.
        cpu_seconds: CPU time of the workers, including drawing the load.
        peak_bytes: The peak memory of a worker.
    """

    settings: pa.Table
    shards: pa.Table
    operations: int
    cpu_seconds: float
    peak_bytes: int

    @property
    def speed(self) -> float:
        """The number of simulated operations per CPU second."""
        return self.operations / max(self.cpu_seconds, 1e-9)


def run_simulation(
    sweep: Sweep, spark: SparkSession, *, partitions: int | None = None
) -> SimulateResult:
    """Simulate every setting of *sweep*.

    Args:
        sweep: The settings to simulate.
        spark: The session to use; its workers need aiowheel and numpy.
        partitions: Number of Spark tasks; no result depends on it. Default: four per core.

    Raises:
        TypeError: A value of *sweep*, or *partitions*, has another type.
        BadInputError: A value of *sweep*, or *partitions*, is out of range.

    Cost: about 0.4 us of CPU per operation and setting with the compiled wheel, ten times that with
    the pure one.
    """
    sweep.check()
    load = sweep.load
    answers = simulate(
        spark.createDataFrame(sweep.settings()),
        operations=load.operations,
        waits=load.waits,
        seed=load.seed,
        shards=load.shards,
        partitions=partitions,
    ).toArrow()
    order = [(name, "ascending") for name in (*_SETTING, "shard")]
    shards = answers.select(SHARDS.names).cast(SHARDS).sort_by(order)
    return SimulateResult(
        settings=_sum_up(shards),
        shards=shards,
        operations=sum(shards["operations"].to_pylist()),
        cpu_seconds=sum(answers["cpu_ns"].to_pylist()) / 1e9,
        peak_bytes=max(answers["peak_bytes"].to_pylist()),
    )


def simulate(
    settings: DataFrame,
    *,
    operations: int,
    waits: Waits,
    seed: int = 1,
    shards: int = 16,
    partitions: int | None = None,
) -> DataFrame:
    """Return the work of wheels with different settings under one drawn load.

    Args:
        settings: A batch with the columns ``tick_ns``, ``wheel_size``, ``timeout_ns`` and ``rate``,
            the arrivals per second. Each row is one wheel and load. A wheel size is at least 2, a
            tick or a timeout at least 1. The last arrival is within 73 years less both.
        operations: Number of operations per setting, at least 1.
        waits: How long operations take to complete.
        seed: The seed of the load, from 0 to 2**62. The same seed draws the same load.
        shards: Number of wheels that share the load of a setting, from 1 to *operations*.
        partitions: Number of Spark tasks; no result depends on it. Default: four per core.

    Returns:
        One row per setting and shard: the four columns and ``shard``; the counts ``operations``,
        ``completed``, ``expired``, ``inserts``, ``cascaded``, ``wake_ups`` and ``late_sum_ns``; the
        maxima ``levels``, ``peak_pending``, ``late_max_ns`` and ``span_ns``; the costs ``cpu_ns``
        and ``peak_bytes``. Sum the counts over the shards, and take the maximum of the others.

    Raises:
        TypeError: An argument or a column has another type.
        BadInputError: *operations*, *seed*, *shards* or *partitions* is out of range. A setting out
            of range raises when the result is used.
        ValueError: A column is missing.

    Cost: about 0.4 us of CPU per operation and setting with the compiled wheel, ten times that with
    the pure one.
    """
    check_frame("settings", settings)
    load = Load(operations, waits, seed, shards)
    load.check()
    if partitions is not None:
        checked_input_int("partitions", partitions, 1, _MOST_PARTITIONS)
    columns = from_arrow_schema(pa.schema(_SETTING))
    found = dict(settings.dtypes)
    for column in columns:
        name, wanted = column.name, column.dataType.simpleString()
        if name not in found:
            raise ValueError(f"settings must have a column {name!r}, got {settings.columns}")
        if not _fits(found[name], wanted):
            raise TypeError(f"{name} of settings must be {wanted}, got {found[name]}")

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.to_pylist():
                yield pa.RecordBatch.from_pylist([run_task(task, load)], _ANSWERS)

    spark = settings.sparkSession
    count = partitions or _PARTITIONS_A_CORE * parallelism(spark)
    numbers = spark.range(shards).select(F.col("id").cast("int").alias("shard"))
    tasks = settings.select(*(F.col(each.name).cast(each.dataType) for each in columns))
    # Repartitioned by number, which Spark keeps; it would merge few small rows into one task.
    plan = tasks.crossJoin(numbers).repartition(count)
    return plan.mapInArrow(run, from_arrow_schema(_ANSWERS))


def _fits(found: str, wanted: str) -> bool:
    """Return whether a column is of the wanted kind: a cast to integers would cut fractions."""
    if found in INTEGERS:
        return True
    return wanted == "double" and (found in {"float", "double"} or found.startswith("decimal"))


def run_task(task: dict[str, Any], load: Load) -> dict[str, Any]:
    """Simulate a shard of a setting, without Spark; return a row of `SHARDS` with its cost.

    Args:
        task: The columns of a setting, and ``shard``.
        load: The load that the shards share.

    Raises:
        BadInputError: The setting is out of range.
    """
    started = time.process_time_ns()
    load.check_setting(*(task[name] for name in _SETTING))
    operations = load.operations_of(task["shard"])
    run = WheelRun(task["tick_ns"], task["wheel_size"])
    chunks = draw(
        load.waits,
        operations=operations,
        rate=task["rate"] / load.shards,
        timeout=task["timeout_ns"],
        seed=load.seed,
        shard=task["shard"],
    )
    span_ns = feed([run], chunks, task["tick_ns"])
    return task | {
        "operations": operations,
        "completed": run.completed,
        "expired": run.expired,
        "inserts": run.inserts,
        "cascaded": run.cascaded,
        "wake_ups": run.wake_ups,
        "late_sum_ns": run.lateness.total_ns,
        "levels": run.levels,
        "peak_pending": run.peak_pending,
        "late_max_ns": run.lateness.maximum_ns,
        "span_ns": span_ns,
        "cpu_ns": time.process_time_ns() - started,
        "peak_bytes": _peak_bytes(),
    }


def _peak_bytes() -> int:
    """Return the peak memory of this process; 0 on Windows, which does not report it."""
    if sys.platform == "win32":
        return 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _sum_up(shards: pa.Table) -> pa.Table:
    wanted = [(name, "sum") for name in _COUNTS] + [(name, "max") for name in _PEAKS]
    grouped = shards.group_by(list(_SETTING), use_threads=False).aggregate(wanted)
    names = [*_SETTING, *(f"{name}_{how}" for name, how in wanted)]
    return grouped.select(names).rename_columns(SETTINGS.names).cast(SETTINGS)


def _check_range(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise BadInputError(f"{name} must be from {least:g} to {most:g}, got {value:g}")
