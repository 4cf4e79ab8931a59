"""Runs over local files where Hadoop's default file system is another one, as on most clusters."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq

from aiowheel.cli import run
from aiowheel.jobs.operations.files import write_events, write_operations
from aiowheel.jobs.schemas import OUTCOMES
from aiowheel.jobs.spark.hadoop import HadoopFolders, read_whole_folders
from aiowheel.jobs.spark.sinks import read_batches, read_folder
from aiowheel.jobs.spark.uris import Folder, parse_uri
from aiowheel.rules import NEVER, NO_VALUE, Event, Operation

from .test_odd_paths import write_trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

TOUCHES = [("a", 1_000), ("b", 2_000), ("a", 40_000), ("c", 41_000)]
ENDINGS = [("done", "completed", "a"), ("late", "expired", None)]


@pytest.fixture
def folder(spark: "SparkSession", tmp_path: Path) -> Iterator[Path]:
    """Return a local folder. Paths without a scheme name files elsewhere, where nothing is written.

    The default file system is a viewfs whose files are in another local folder.
    """
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    name = secrets.token_hex(4)  # Hadoop caches file systems by name
    settings = {
        "fs.defaultFS": f"viewfs://{name}/",
        f"fs.viewfs.mounttable.{name}.linkFallback": f"file://{elsewhere}",
    }
    context: Any = spark.sparkContext
    hadoop = context._jsc.hadoopConfiguration()
    for key, value in settings.items():
        hadoop.set(key, value)
    folder = tmp_path / "a b%20é"
    folder.mkdir()
    yield folder
    for key in settings:
        hadoop.unset(key)
    assert list(elsewhere.iterdir()) == []


def write_tables(folder: Path) -> tuple[Path, Path]:
    """Write an operation that completes, one that expires, and an event."""
    places = folder / "operations", folder / "events"
    for place in places:
        place.mkdir()
    operations = [
        Operation("done", ("a",), (NO_VALUE,), 1, 5, 50),
        Operation("late", ("b",), (NO_VALUE,), 2, 6, 20),
    ]
    write_operations(places[0] / "0.parquet", operations)
    write_events(places[1] / "0.parquet", [Event("a", 7, 1)])
    return places


def endings(table: pa.Table) -> list[tuple[str, str, str | None]]:
    """Return id, outcome and completing key of each row."""
    return sorted((row["id"], row["outcome"], row["completed_by"]) for row in table.to_pylist())


@pytest.mark.parametrize("suffix", [pytest.param("csv", marks=pytest.mark.thorough), "parquet"])
def test_idle_reads_and_writes_local_files(folder: Path, suffix: str) -> None:
    """Both engines write the same events."""
    file = folder / f"touches.{suffix}"
    if suffix == "csv":
        file.write_text("".join(["key,t\n", *(f"{key},{t}\n" for key, t in TOUCHES)]))
    else:
        keys, times = zip(*TOUCHES, strict=True)
        pq.write_table(pa.table({"key": keys, "t": times}), file)
    command = ["idle", str(file), "--key", "key", "--time", "t", "--unit", "ms", "--timeout", "30"]

    for engine in ("wheel", "spark"):
        assert run([*command, "--engine", engine, "--out", str(folder / engine)]) == 0

    assert (folder / "spark").read_text() == (folder / "wheel").read_text()


@pytest.mark.parametrize("scheme", ["", pytest.param("file://", marks=pytest.mark.thorough)])
def test_purgatory_reads_and_writes_local_files(folder: Path, scheme: str) -> None:
    """A path and a URI name the same files."""
    tables = [f"{scheme}{place}" for place in write_tables(folder)]
    out = folder / "out"

    assert run(["purgatory", *tables, "--engine", "spark", "--out", f"{scheme}{out}"]) == 0

    assert endings(read_folder(out / "outcomes", OUTCOMES)) == ENDINGS


@pytest.mark.thorough
def test_the_stream_of_purgatory_keeps_a_local_checkpoint(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stops, lists its pending operations, and continues."""
    places = write_tables(folder)
    out = folder / "out"
    command = ["purgatory", *map(str, places), "--stream", "--once", "--shards", "1"]
    command += ["--out", str(out)]

    assert run(command) == 0
    capsys.readouterr()
    assert run(["pending", "--checkpoint", str(out / "checkpoint"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pending"] > 0
    # Rows that move the watermarks past all others.
    last = Operation("last", ("z",), (NO_VALUE,), 1, 1_000, NEVER)
    write_operations(places[0] / "1.parquet", [last])
    write_events(places[1] / "1.parquet", [Event("y", 1_000, 1)])
    assert run(command) == 0

    assert endings(read_batches(out / "outcomes", OUTCOMES)) == ENDINGS


@pytest.mark.parametrize("scheme", [pytest.param("", marks=pytest.mark.thorough), "file://"])
def test_the_streams_of_idle_keep_a_local_checkpoint(folder: Path, scheme: str) -> None:
    """A stream reads files of any format."""
    (folder / "in").mkdir()
    rows = "".join(["key,t\n", *(f"{key},{t}\n" for key, t in TOUCHES)])
    (folder / "in" / "1.csv").write_text(rows)
    out = folder / "out"
    command = ["idle", f"{scheme}{folder}/in", "--stream", "--drain", "--shards", "1"]
    command += ["--key", "key", "--time", "t", "--unit", "ms", "--timeout", "30"]

    assert run([*command, "--out", f"{scheme}{out}"]) == 0

    found = read_batches(out / "events", pa.schema({"fire": pa.int64(), "key": pa.string()}))
    assert sorted(found.column("fire").to_pylist()) == [31_000, 32_000, 70_000, 71_000]


@pytest.mark.thorough
def test_a_report_reads_a_local_trace(folder: Path) -> None:
    """The report counts the operation of the trace."""
    trace = folder / "trace"
    write_trace(trace, "own")

    assert run(["report", str(trace), "--out", str(folder / "report")]) == 0

    assert pq.read_table(folder / "report" / "outcomes.parquet").num_rows == 1


def test_a_stream_with_a_distant_checkpoint_writes_local_files(
    spark: "SparkSession", folder: Path
) -> None:
    """Spark alone then writes the folders of the micro-batches."""
    place = parse_uri(str(folder / "out"))
    assert isinstance(place, Folder)
    checkpoint = Folder(str(folder / "checkpoint"), "file")

    written = HadoopFolders(spark, place, checkpoint).write(spark.range(3), 0)

    found = read_whole_folders(spark, place, pa.schema({"id": pa.int64()}))
    assert (written, found.count()) == (3, 3)
    assert (folder / "out" / "batch_id=000000" / "_SUCCESS").exists()
