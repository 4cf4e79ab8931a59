"""`aiowheel simulate`: its output, its files and its errors."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from aiowheel.cli import run
from aiowheel.trace import TRACE_SCHEMA, read_trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MS = 1_000_000


def write_trace(folder: Path, timeout: int = 80 * MS, never: float = 0.0) -> Path:
    """Record 4,000 operations at 1,000 a second: half within 50 ms, 3/4 within 100 ms."""
    pytest.importorskip("pyspark")
    from aiowheel.jobs.wheels.drawn_load import Waits, draw

    (chunk,) = draw(
        replace(Waits.from_quantiles(0.05, 0.1), never=never),
        operations=4_000,
        rate=1_000,
        timeout=timeout,
        seed=5,
        shard=0,
    )
    expired = chunk.ends >= chunk.deadlines
    count = len(expired)
    columns = {
        "run_id": pa.array(["r"] * count).dictionary_encode(),
        "purgatory": pa.array(["fetch"] * count).dictionary_encode(),
        "operation_id": np.arange(count),
        "kind": pa.array(["Fetch"] * count).dictionary_encode(),
        "keys": pa.array([["k"]] * count, TRACE_SCHEMA.field("keys").type),
        "created": chunk.created,
        "deadline": chunk.deadlines,
        "finished": np.where(expired, chunk.deadlines + MS // 2, chunk.ends),
        "outcome": pa.array(np.where(expired, "expired", "completed")).dictionary_encode(),
        "completed_by": pa.nulls(count, pa.string()),
        "lateness": pa.array(np.full(count, MS // 2), mask=~expired),
        "checks": np.ones(count, np.int32),
    }
    folder.mkdir()
    arrays = [pa.array(column) for column in columns.values()]
    table = pa.Table.from_arrays(arrays, schema=TRACE_SCHEMA)
    pq.write_table(table, folder / "trace-r-000001.parquet")
    return folder


@pytest.mark.spark
@pytest.mark.slow
def test_a_sweep_is_printed_and_saved(
    one_session: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every combination is a row of the JSON, of the table and of the page."""
    out = tmp_path / "simulation"
    options = ["--operations", "2e3", "--tick", "0.001", "--tick", "0.1", "--wheel-size", "20"]

    assert run(["simulate", *options, "--shards", "2", "--out", str(out), "--json"]) == 0

    text, errors = capsys.readouterr()
    printed = json.loads(text)
    assert errors == ""
    assert [row["tick_ns"] for row in printed["settings"]] == [MS, 100 * MS]
    assert all(row["completed"] + row["expired"] == 2_000 for row in printed["settings"])
    assert printed["settings"][0]["cascaded"] > printed["settings"][1]["cascaded"]
    assert printed["settings"] == pq.read_table(out / "settings.parquet").to_pylist()
    assert pq.read_table(out / "shards.parquet").num_rows == 4
    assert "Wake-ups per second and wheel, by tick" in Path(printed["page"]).read_text("utf-8")
    assert not list(out.glob(".*"))


@pytest.mark.spark
@pytest.mark.slow
def test_a_load_is_fitted_to_a_trace(
    one_session: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rate, timeout and waits come from the trace; the share of timeouts matches."""
    trace = write_trace(tmp_path / "trace")

    assert run(["simulate", "--fit", str(trace), "--operations", "4000", "--json"]) == 0

    printed = json.loads(capsys.readouterr().out)
    (setting,) = printed["settings"]
    assert setting["rate"] == pytest.approx(1_000, rel=0.05)
    assert setting["timeout_ns"] == 80 * MS
    assert np.exp(printed["mu"]) == pytest.approx(0.05, rel=0.1)
    assert setting["expired"] / 4_000 == pytest.approx(0.324, abs=0.03)


def write_runs(folder: Path, starts_ns: dict[str, list[int]]) -> Path:
    """Record operations of several runs, each a millisecond long, at the given times."""
    folder.mkdir()
    rows = [
        {
            "run_id": run,
            "purgatory": "fetch",
            "operation_id": number,
            "kind": "Fetch",
            "keys": ["k"],
            "created": created,
            "deadline": created + 80 * MS,
            "finished": created + (1 + number % 7) * MS,
            "outcome": "completed",
            "completed_by": None,
            "lateness": None,
            "checks": 1,
        }
        for run, times in starts_ns.items()
        for number, created in enumerate(times)
    ]
    table = pa.Table.from_pylist(rows, TRACE_SCHEMA)
    pq.write_table(table, folder / "trace-r-000001.parquet")
    return folder


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("starts", "rate"),
    [
        ({"a": 0, "b": 86_400_000 * MS}, 1_000),  # a day apart: the gap does not count
        ({"a": 0, "b": 500 * MS}, 2_000 / 1.5),  # overlapping for half of the time
        pytest.param({"a": 0, "b": 0}, 2_000, marks=pytest.mark.thorough),
    ],
)
def test_the_rate_is_that_of_the_time_within_runs(
    one_session: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    starts: dict[str, int],
    rate: float,
) -> None:
    """Two runs last a second each, at 1,000 operations a second."""
    times = {run: [start + n * MS for n in range(1_000)] for run, start in starts.items()}
    trace = write_runs(tmp_path / "trace", times)

    assert run(["simulate", "--fit", str(trace), "--operations", "10", "--json"]) == 0

    (setting,) = json.loads(capsys.readouterr().out)["settings"]
    assert setting["rate"] == pytest.approx(rate, rel=0.002)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("timeout_ms", [200, pytest.param(10_000, marks=pytest.mark.thorough)])
def test_the_share_that_never_completes_is_simulated(
    one_session: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], timeout_ms: int
) -> None:
    """26 % time out both in the trace and in the simulation."""
    trace = write_trace(tmp_path / "trace", timeout=timeout_ms * MS, never=0.26)
    expired = pc.mean(pc.equal(read_trace(trace)["outcome"], "expired").cast(pa.int8())).as_py()

    assert run(["simulate", "--fit", str(trace), "--operations", "4000", "--json"]) == 0

    printed = json.loads(capsys.readouterr().out)
    (setting,) = printed["settings"]
    assert expired > 0.24
    assert printed["never"] == pytest.approx(0.26, abs=0.04)
    assert setting["expired"] / 4_000 == pytest.approx(expired, abs=0.02)


@pytest.mark.spark
@pytest.mark.slow
def test_given_options_take_precedence_over_the_trace(
    one_session: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given waits, rate and timeout apply; a single quantile uses the other's default."""
    trace = write_trace(tmp_path / "trace")
    given = ["--p50", "0.03", "--rate", "500", "--timeout", "0.1", "--operations", "100"]

    assert run(["simulate", "--fit", str(trace), *given, "--json"]) == 0

    printed = json.loads(capsys.readouterr().out)
    (setting,) = printed["settings"]
    assert np.exp(printed["mu"]) == pytest.approx(0.03)
    assert (setting["rate"], setting["timeout_ns"]) == (500.0, 100 * MS)


@pytest.mark.spark
@pytest.mark.slow
def test_a_trace_in_which_nothing_completed_cannot_be_fitted(
    one_session: None, spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is one line with exit code 2."""
    pq.write_table(TRACE_SCHEMA.empty_table(), tmp_path / "trace-r-1.parquet")

    assert run(["simulate", "--fit", str(tmp_path)]) == 2

    assert "cannot be fitted: 0 of 0 operations completed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--operations", "1.5"], "--operations must be a whole number, at least 1, got 1.5"),
        (["--operations", "nan"], "--operations must be a whole number, at least 1, got nan"),
        (["--operations", "inf"], "--operations must be a whole number, at least 1, got inf"),
        (["--tick", "0"], "--tick must be from 1e-09 to 1e+09 s, got 0"),
        (["--timeout", "-1"], "--timeout must be from 1e-09 to 1e+09 s, got -1"),
        (["--p50", "0.1"], "--p50 must be above 0 and below --p75 (0.06 s), got 0.1"),
        (["--wheel-size", "1"], "--wheel-size must be from 2 to 16777216, got 1"),
        (["--rate", "1e-9"], "--rate must be from 0.000451375 to 1e+09, got 1e-09"),
        (
            ["--operations", "1", "--rate", "1e-9"],
            "--rate must be from 2.64545e-08 to 1e+09, got 1e-09",
        ),
        (["--fit", "nowhere"], "no trace file (trace-*.parquet) in 'nowhere'"),
    ],
)
def test_a_sweep_that_cannot_be_simulated_is_bad_input(
    needs_spark: None, options: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is one line with exit code 2, before Spark is started."""
    assert run(["simulate", *options]) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"aiowheel: {reason}\n"
