"""The simulation job equals the closed form, on any number of partitions."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aiowheel.errors import BadInputError

pytest.importorskip("pyspark")

from aiowheel.jobs.wheels.drawn_load import Waits, draw
from aiowheel.jobs.wheels.simulate import (
    SHARDS,
    Load,
    Sweep,
    run_simulation,
    run_task,
    simulate,
)

from .closed_form import closed_form

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MS = 1_000_000
LOAD = Load(20_001, Waits.from_quantiles(0.02, 0.06), seed=7, shards=3)
SWEEP = Sweep(
    LOAD,
    ticks_ns=[1 * MS, 7 * MS],
    wheel_sizes=[8, 256],
    timeouts_ns=[200 * MS],
    rates=[4_000.0],
)


def view_load(spark: "SparkSession", sweep: Sweep, folder: Path) -> None:
    """Create the view `load` with the load of a sweep with one rate and one timeout."""
    load = sweep.load
    for shard in range(load.shards):
        chunks = draw(
            load.waits,
            operations=load.operations_of(shard),
            rate=sweep.rates[0] / load.shards,
            timeout=sweep.timeouts_ns[0],
            seed=load.seed,
            shard=shard,
        )
        for nth, chunk in enumerate(chunks):
            columns = {"created": chunk.created, "ends": chunk.ends}
            table = pa.table(columns).append_column(
                "shard", pa.array([shard] * len(chunk.created), pa.int32())
            )
            pq.write_table(table, folder / f"{shard}-{nth}.parquet")
    spark.read.parquet(str(folder)).createOrReplaceTempView("load")


def test_a_value_given_twice_is_one_setting() -> None:
    """Otherwise its row would have the counts of two settings."""
    twice = replace(SWEEP, ticks_ns=[MS, MS, 7 * MS], rates=[4_000.0, 4e3])

    assert twice.settings() == SWEEP.settings()


@pytest.mark.spark
@pytest.mark.slow
def test_the_wheel_matches_the_closed_form(spark: "SparkSession", tmp_path: Path) -> None:
    """Timeouts, cascades, inserts, wake-ups, peak and lateness of every shard are as in SQL."""
    sweep = replace(SWEEP, ticks_ns=[MS], wheel_sizes=[8])
    found = run_simulation(sweep, spark, partitions=2).shards

    view_load(spark, sweep, tmp_path)
    unknown_to_sql = ["tick_ns", "wheel_size", "timeout_ns", "rate", "levels"]
    assert found.drop_columns(unknown_to_sql).to_pylist() == closed_form(spark, sweep)
    assert set(found["levels"].to_pylist()) == {5}


@pytest.mark.spark
@pytest.mark.slow
def test_partitions_change_no_table(spark: "SparkSession") -> None:
    """One, two and eight tasks give the same rows."""
    one, two, eight = (run_simulation(SWEEP, spark, partitions=count) for count in (1, 2, 8))

    assert one.shards.schema == SHARDS
    assert one.shards.equals(two.shards)
    assert one.shards.equals(eight.shards)
    assert one.settings.equals(eight.settings)
    assert one.settings.num_rows == 4
    assert one.operations == 4 * 20_001
    assert one.cpu_seconds > 0
    assert one.peak_bytes > 1_000_000


@pytest.mark.parametrize("operations", [1, 2_000])
@pytest.mark.parametrize("seconds", [1e-9, 1e9])
def test_no_operation_is_lost_at_the_least_rate(operations: int, seconds: float) -> None:
    """Also with the longest tick and timeout, because no time is beyond the wheel's range."""
    most = round(1e9 * seconds)
    waits = replace(LOAD.waits, never=0.5)
    load = Load(operations, waits, shards=1)
    with pytest.raises(BadInputError, match="rate must be from") as refused:
        load.check_setting(most, 8, most, 0.0)
    least = float(str(refused.value).split()[4]) * 1.000_01  # the text is rounded

    for seed in range(20):
        task = {"tick_ns": most, "wheel_size": 8, "timeout_ns": most, "rate": least, "shard": 0}
        row = run_task(task, replace(load, seed=seed))
        assert row["completed"] + row["expired"] == operations


def _changed(change: dict[str, Any]) -> Sweep:
    """Return a sweep with other attributes of its load or of its own."""
    of_load = {name: value for name, value in change.items() if hasattr(LOAD, name)}
    own = {name: value for name, value in change.items() if name not in of_load}
    return replace(SWEEP, load=replace(LOAD, **of_load), **own)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"operations": 0}, "operations must be from 1 to 1000000000000, got 0"),
        ({"shards": 20_002}, "shards must be from 1 to 20001, got 20002"),
        ({"ticks_ns": [0]}, "tick must be from 1e-09 to 1e\\+09, got 0"),
        ({"wheel_sizes": [16_777_217]}, "size must be from 2 to 16777216, got 16777217"),
        ({"timeouts_ns": [MS, -MS]}, "timeout must be from 1e-09 to 1e\\+09, got -0.001"),
        ({"rates": [0.0]}, "rate must be from 9.80143e-06 to 1e\\+09, got 0"),
        ({"rates": [float("nan")]}, "rate must be from 9.80143e-06 to 1e\\+09, got nan"),
        ({"seed": -1}, "seed must be from 0 to 4611686018427387904, got -1"),
    ],
)
def test_a_sweep_out_of_range_is_refused(change: dict[str, Any], reason: str) -> None:
    """The error has the value and the range."""
    with pytest.raises(BadInputError, match=reason):
        _changed(change).check()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"operations": 1e3}, "operations must be an int from 1 to 1000000000000, got 1000.0"),
        ({"operations": "5"}, "operations must be an int from 1 to 1000000000000, got '5'"),
        ({"shards": 2.0}, "shards must be an int from 1 to 20001, got 2.0"),
        ({"seed": 1.5}, "seed must be an int from 0 to 4611686018427387904, got 1.5"),
        ({"wheel_sizes": [64.5]}, "wheel size must be an int from 2 to 16777216, got 64.5"),
        ({"waits": (1, 2)}, "waits must be a Waits, got (1, 2)"),
    ],
)
def test_a_sweep_of_other_types_is_refused(change: dict[str, Any], reason: str) -> None:
    """A seed of 1.5 would draw the load of seed 1; the others would fail in a worker."""
    with pytest.raises(TypeError) as caught:
        _changed(change).check()

    assert str(caught.value) == reason


@pytest.mark.spark
@pytest.mark.parametrize(
    ("columns", "arguments", "reason"),
    [
        ("", {"seed": 1.5}, "seed must be an int from 0 to 4611686018427387904, got 1.5"),
        ("", {"partitions": 1.5}, "partitions must be an int from 1 to 2147483647, got 1.5"),
        ("tick_ns double", {}, "tick_ns of settings must be bigint, got double"),
        ("wheel_size string", {}, "wheel_size of settings must be int, got string"),
        ("rate string", {}, "rate of settings must be double, got string"),
    ],
)
def test_arguments_of_other_types_are_refused(
    columns: str, arguments: dict[str, Any], reason: str, spark: "SparkSession"
) -> None:
    """The call raises before Spark does any work; a tick of 1000.7 would become 1000."""
    name, _, kind = columns.partition(" ")
    usual = {"tick_ns": "bigint", "wheel_size": "int", "timeout_ns": "bigint", "rate": "double"}
    types = usual | ({name: kind} if name else {})
    settings = spark.createDataFrame([], ", ".join(f"{each} {types[each]}" for each in types))
    usual_arguments: dict[str, Any] = {"operations": 100, "waits": LOAD.waits}

    with pytest.raises(TypeError) as caught:
        simulate(settings, **usual_arguments | arguments)

    assert str(caught.value) == reason
