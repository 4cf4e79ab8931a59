"""The commands with tables in S3 and in Delta Lake."""

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from aiowheel.cli import run
from aiowheel.trace import TRACE_SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # PySpark 4.0's own
]

OPERATIONS = [
    '{"id": "a", "keys": ["k"], "created": 1, "deadline": 50}',
    '{"id": "b", "keys": ["none"], "created": 1, "deadline": 50}',
    '{"id": "c", "keys": ["none"], "created": 1}',
    '{"id": "", "keys": ["k"], "created": 1}',
    "no JSON",
]


def test_a_purgatory_from_s3_and_delta_to_both(
    spark: "SparkSession", bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines of text and a table are read, and every row is in one result."""
    lines = spark.createDataFrame([(line,) for line in OPERATIONS], "value string")
    lines.coalesce(1).write.text(f"{bucket}/ops")
    events = spark.createDataFrame([("k", 20, None)], "key string, time bigint, value bigint")
    events.write.format("delta").save(f"{bucket}/events")
    command = ["purgatory", f"{bucket}/ops", f"delta:{bucket}/events", "--format", "ndjson"]
    command += ["--engine", "spark", "--json", "--out"]

    for out, form in ((f"{bucket}/found", "parquet"), (f"delta:{bucket}/delta", "delta")):
        assert run([*command, out]) == 0
        found = json.loads(capsys.readouterr().out)
        counts = [found[name] for name in ("operations", "events", "rejected")]
        assert counts == [3, 1, 2]
        assert [found[name] for name in ("completed", "expired", "pending")] == [1, 1, 1]
        place = out.removeprefix("delta:")
        outcomes = spark.read.format(form).load(f"{place}/outcomes")
        ends = sorted(tuple(row) for row in outcomes.select("id", "outcome", "at").collect())
        assert ends == [("a", "completed", 20), ("b", "expired", 50)]
        bad = spark.read.format(form).load(f"{place}/rejects").collect()
        assert {row["raw"] for row in bad} == set(OPERATIONS[3:])
        assert all(row["source"].startswith(f"{bucket}/ops/") for row in bad)


def test_idle_events_from_s3_to_delta(
    spark: "SparkSession", bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table of touches is read; a table of events and one of rejects are written."""
    rows = [("a", 1), ("a", 20), ("b", 5), (None, 7)]
    spark.createDataFrame(rows, "key string, t bigint").write.parquet(f"{bucket}/touches")
    out, rejects = f"delta:{bucket}/idle", f"{bucket}/idle_rejects"
    command = ["idle", f"{bucket}/touches", "--timeout", "10", "--engine", "spark", "--json"]

    assert run([*command, "--out", out, "--rejects", rejects]) == 0

    found = json.loads(capsys.readouterr().out)
    counts = [found[name] for name in ("rows_read", "rows", "rejected", "idle_events")]
    assert counts == [4, 3, 1, 3]
    events = spark.read.format("delta").load(out.removeprefix("delta:")).collect()
    assert sorted(map(tuple, events)) == [(11, "a"), (15, "b"), (30, "a")]
    assert [row["reason"] for row in spark.read.parquet(rejects).collect()] == ["key is missing"]


def test_a_report_on_a_trace_in_s3(
    spark: "SparkSession", bucket: str, tmp_path: "Path", capsys: pytest.CaptureFixture[str]
) -> None:
    """The trace is a folder of Parquet; a folder without a trace is named in the error."""
    row = {
        "run_id": "r",
        "purgatory": "fetch",
        "operation_id": 1,
        "kind": "Fetch",
        "keys": ["k"],
        "created": 10**18,
        "deadline": None,
        "finished": 10**18 + 5,
        "outcome": "completed",
        "completed_by": "k",
        "lateness": None,
        "checks": 1,
    }
    trace = pa.Table.from_pylist([row], TRACE_SCHEMA)
    spark.createDataFrame(trace).write.parquet(f"{bucket}/trace")
    spark.range(1).write.parquet(f"{bucket}/other")

    assert run(["report", f"{bucket}/trace", "--out", str(tmp_path / "report"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operations"] == 1

    assert run(["report", f"{bucket}/other", "--out", str(tmp_path / "none")]) == 2
    assert f"{bucket}/other: not a trace: no column 'run_id'" in capsys.readouterr().err
