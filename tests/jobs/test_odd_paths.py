"""Runs over folders whose names contain pattern characters or characters that URLs escape.

The streams of `test_stream_faults` work in such a folder.
"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq

from aiowheel.cli import run
from aiowheel.jobs.operations.batch import run_purgatory
from aiowheel.jobs.operations.files import write_events, write_operations
from aiowheel.jobs.report.job import read_trace_frame
from aiowheel.jobs.schemas import OUTCOMES
from aiowheel.jobs.spark.sinks import read_folder
from aiowheel.jobs.spark.uris import spark_path
from aiowheel.rules import NEVER, NO_VALUE, Event, Operation
from aiowheel.trace import TRACE_SCHEMA

from .conftest import assert_nothing_lost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

IN_9999 = 253_402_300_799_000  # ms; databases use this time for "never"


def write_trace(folder: Path, run: str) -> None:
    """Write a trace with one operation."""
    operation = {
        "run_id": run,
        "purgatory": "p",
        "operation_id": 0,
        "kind": "k",
        "keys": ["a"],
        "created": 1,
        "deadline": 1_000_000_001,
        "finished": 2,
        "outcome": "completed",
        "completed_by": "a",
        "lateness": None,
        "checks": 1,
    }
    folder.mkdir()
    table = pa.Table.from_pylist([operation], TRACE_SCHEMA)
    pq.write_table(table, folder / f"trace-{run}-000001.parquet")


def write_tables(folder: Path, id_: str) -> tuple[Path, Path]:
    """Write an operation that completes, one due in the year 9999 and one without a deadline."""
    places = folder / "operations", folder / "events"
    for place in places:
        place.mkdir(parents=True)
    operations = [
        Operation(id_, ("a",), (NO_VALUE,), 1, 5, 50),
        Operation(f"{id_} later", ("b", "c"), (NO_VALUE, NO_VALUE), 2, 6, IN_9999),
        Operation(f"{id_} ever", ("b",), (NO_VALUE,), 1, 6, NEVER),
    ]
    write_operations(places[0] / "0.parquet", operations)
    write_events(places[1] / "0.parquet", [Event("a", 7, 1), Event("c", 8, 1)])
    return places


ENDINGS = [("own", "completed", "a", 7), ("own later", "expired", None, IN_9999)]


def test_pattern_characters_are_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pattern character gets a backslash, and the path is an absolute URI."""
    monkeypatch.chdir(tmp_path)

    assert spark_path("a[1]{b}*?\\c") == f"file://{tmp_path}/a\\[1\\]\\{{b\\}}\\*\\?\\\\c"


def test_a_trace_is_read_from_its_own_folder(spark: "SparkSession", tmp_path: Path) -> None:
    """A neighbouring folder that the name would match as a pattern is not read."""
    write_trace(tmp_path / "run*", "own")
    write_trace(tmp_path / "run2", "other")

    runs = [row["run_id"] for row in read_trace_frame(tmp_path / "run*", spark).collect()]

    assert runs == ["own"]


def test_a_query_reads_its_own_folders(spark: "SparkSession", tmp_path: Path) -> None:
    """Folders whose names match a neighbour as a pattern, or contain a colon, are read."""
    tables = write_tables(tmp_path / "of *", "own")
    write_tables(tmp_path / "of another", "other")
    out = tmp_path / "found:1"

    result = run_purgatory(spark, *tables, out, 1, None)

    found = read_folder(out / "outcomes", OUTCOMES).to_pylist()
    assert result.operations == 3
    assert_nothing_lost(asdict(result), out, 5)
    assert sorted(tuple(row.values()) for row in found) == ENDINGS


@pytest.mark.usefixtures("one_session")
def test_a_stream_checks_the_columns_of_a_relative_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The names of Spark's files have no `..`; without the check, Spark would misread the times."""
    write_tables(tmp_path, "own")
    file = tmp_path / "operations" / "1.parquet"
    created = pa.array([1], pa.timestamp("us"))
    pq.write_table(pa.table({"id": ["x"], "keys": [["a"]], "created": created}), file)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    places = ["../operations", "../events", "--out", "../out"]
    assert run(["purgatory", *places, "--stream", "--shards", "1", "--once"]) == 2

    assert f"{file}: column created must be int64, got timestamp" in capsys.readouterr().err
