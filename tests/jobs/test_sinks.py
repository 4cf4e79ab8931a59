"""The folders that a stream writes, one per micro-batch and day."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aiowheel.errors import AiowheelError, BadInputError
from aiowheel.readers import Unit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from aiowheel.jobs.spark.sinks import BatchFolders
    from aiowheel.jobs.spark.uris import Folder

pytestmark = [pytest.mark.one_build, pytest.mark.spark, pytest.mark.slow]

SCHEMA = pa.schema([("n", pa.int64())])
DAY = 86_400
ADAPTIVE = "spark.sql.adaptive.enabled"


@pytest.fixture
def sink(needs_spark: None, tmp_path: Path) -> "BatchFolders":
    """Return the sink of a new stream."""
    from aiowheel.jobs.spark.sinks import BatchFolders

    return BatchFolders(tmp_path / "out", tmp_path / "checkpoint")


def numbers(spark: "SparkSession", *values: int) -> "DataFrame":
    """Return a frame of one column."""
    return spark.createDataFrame([(value,) for value in values], "n bigint")


def written(folder: Path) -> list[int]:
    """Return the rows that a reader finds, in batch order."""
    from aiowheel.jobs.spark.sinks import read_batches

    values: list[int] = read_batches(folder, SCHEMA).column("n").to_pylist()
    return values


def test_a_repeated_batch_replaces_the_first_one(
    spark: "SparkSession", sink: "BatchFolders"
) -> None:
    """A batch that Spark repeats after a crash is present once."""
    assert sink.write(numbers(spark, 1, 2), 0) == 2
    assert sink.write(numbers(spark, 3), 1) == 1

    assert sink.write(numbers(spark, 3), 1) == 1

    assert sorted(written(sink.folder)) == [1, 2, 3]
    assert sorted(path.name for path in sink.folder.iterdir()) == [
        "batch_id=000000",
        "batch_id=000001",
    ]


def test_remains_of_a_crash_are_not_read(spark: "SparkSession", sink: "BatchFolders") -> None:
    """An incomplete folder has a hidden name, and is written again."""
    half = sink.folder / ".batch_id=000000.tmp"
    half.mkdir(parents=True)
    (half / "part-0.parquet").write_bytes(b"")
    assert written(sink.folder) == []

    sink.write(numbers(spark, 1), 0)

    assert written(sink.folder) == [1]
    assert not half.exists()


def test_the_name_of_a_batch_reaches_the_disk(
    spark: "SparkSession", sink: "BatchFolders", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark finishes the micro-batch only when a loss of power no longer undoes the rename."""
    synced: list[tuple[int, bool]] = []

    def sync(descriptor: int) -> None:
        is_named = (sink.folder / "batch_id=000000").exists()
        synced.append((os.fstat(descriptor).st_ino, is_named))

    monkeypatch.setattr(os, "fsync", sync)
    sink.write(numbers(spark, 1), 0)

    assert synced[-1] == (sink.folder.stat().st_ino, True)


def test_a_batch_without_rows_leaves_no_folder(spark: "SparkSession", sink: "BatchFolders") -> None:
    """A stream without new rows does not fill the disk with empty files."""
    assert sink.write(numbers(spark), 7) == 0

    assert list(sink.folder.iterdir()) == []


def test_two_streams_do_not_share_a_folder(
    spark: "SparkSession", sink: "BatchFolders", tmp_path: Path
) -> None:
    """A new checkpoint counts from 0 and would replace existing batches."""
    from aiowheel.jobs.spark.sinks import BatchFolders

    sink.write(numbers(spark, 1), 0)

    with pytest.raises(BadInputError, match="holds the batches of another stream"):
        BatchFolders(sink.folder, tmp_path / "another")


def begun(checkpoint: Path, stream: str) -> Path:
    """Return a checkpoint as Spark leaves it behind a stream."""
    (checkpoint / "commits").mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": stream}))
    return checkpoint


def test_two_streams_that_have_begun_do_not_share_a_folder(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """The second one was made while the first one had no rows yet."""
    from aiowheel.jobs.spark.sinks import BatchFolders

    first, second = (begun(tmp_path / name, name) for name in ("a", "b"))
    sinks = [BatchFolders(tmp_path / "out", checkpoint) for checkpoint in (first, second)]
    sinks[0].write(numbers(spark), 0)

    with pytest.raises(BadInputError, match="holds the batches of another stream"):
        sinks[1].write(numbers(spark, 1), 0)
    with pytest.raises(BadInputError, match="holds the batches of another stream"):
        BatchFolders(tmp_path / "out", second)
    BatchFolders(tmp_path / "out", first).write(numbers(spark, 2), 1)
    assert written(tmp_path / "out") == [2]


def test_a_stream_does_not_add_to_the_result_of_a_batch(tmp_path: Path) -> None:
    """Readers of the folder would find the rows of both."""
    from aiowheel.jobs.spark.sinks import BatchFolders

    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-0.parquet").write_bytes(b"rows")

    with pytest.raises(BadInputError, match="holds the batches of another stream"):
        BatchFolders(tmp_path / "out", tmp_path / "checkpoint")


def test_a_stream_continues_in_its_folder(
    spark: "SparkSession", sink: "BatchFolders", tmp_path: Path
) -> None:
    """With its checkpoint the stream continues in its folder."""
    from aiowheel.jobs.spark.sinks import BatchFolders

    sink.write(numbers(spark, 1), 0)
    (tmp_path / "checkpoint" / "commits").mkdir(parents=True)

    BatchFolders(sink.folder, tmp_path / "checkpoint").write(numbers(spark, 2), 1)

    assert written(sink.folder) == [1, 2]


def test_missing_parts_fail_the_batch(
    spark: "SparkSession", sink: "BatchFolders", monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor may write to its own disk; a repeated batch keeps the earlier folder."""
    from pyspark.sql import DataFrameWriter

    sink.write(numbers(spark, 1, 2, 3), 0)
    write_parts = DataFrameWriter.parquet

    def lose_a_part(writer: DataFrameWriter, path: str) -> None:
        write_parts(writer, path)
        folder = Path(path.removeprefix("file:"))
        parts = sorted(folder.glob("part-*"), key=lambda part: part.stat().st_size)
        parts[-1].unlink()
        parts[0].write_bytes(b"PAR1")

    monkeypatch.setattr(DataFrameWriter, "parquet", lose_a_part)

    with pytest.raises(AiowheelError, match=r"batch_id=000000: 3 rows were written, 0 can be read"):
        sink.write(numbers(spark, 1, 2, 3).repartition(2), 0)

    assert sorted(written(sink.folder)) == [1, 2, 3]
    assert [path.name for path in sink.folder.iterdir()] == ["batch_id=000000"]


@pytest.mark.posix
def test_a_link_to_a_folder_stays(spark: "SparkSession", tmp_path: Path) -> None:
    """The folder that it points to is replaced."""
    from aiowheel.jobs.spark.targets import write_rows

    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    for values in ((1, 2), (3,)):
        assert write_rows(numbers(spark, *values), str(tmp_path / "link"), key=["n"]) == len(values)

    assert pq.read_table(tmp_path / "real")["n"].to_pylist() == [3]
    assert (tmp_path / "link").is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"real", "link"}


@pytest.mark.parametrize("place", ["disk", "object store"])
def test_a_result_without_rows_is_a_folder(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A reader finds no rows, instead of the rows of the earlier result or no folder."""
    from aiowheel.jobs.spark import hadoop, targets

    if place == "object store":
        monkeypatch.setattr(
            targets,
            "replace_folder",
            lambda frame, path, **named: hadoop.replace_files(frame, a_folder(path), **named),
        )
    out = str(tmp_path / "out")
    for values in ((1, 2), ()):
        assert targets.write_rows(numbers(spark, *values), out, key=["n"]) == len(values)

    assert spark.read.parquet(out).columns == ["n"]
    assert spark.read.parquet(out).count() == 0

    assert targets.write_rows(numbers(spark), out, key=["n"], keep_empty=False) == 0
    assert not (tmp_path / "out").exists()


def files(folder: Path) -> dict[str, list[list[int]]]:
    """Return the rows of each file, by the file's folder."""
    found: dict[str, list[list[int]]] = {}
    for file in sorted(folder.glob("**/*.parquet")):
        name = file.parent.relative_to(folder).as_posix()
        found.setdefault(name, []).append(pq.ParquetFile(file).read()["n"].to_pylist())
    return found


@pytest.fixture
def streaming(spark: "SparkSession") -> Iterator[None]:
    """Switch off what a streaming query switches off in its session; check that it stays so."""
    spark.conf.set(ADAPTIVE, "false")
    yield
    assert spark.conf.get(ADAPTIVE) == "false"
    spark.conf.unset(ADAPTIVE)


@pytest.mark.usefixtures("streaming")
def test_each_day_of_a_batch_has_one_sorted_file(spark: "SparkSession", tmp_path: Path) -> None:
    """However many tasks a query has; times beyond all dates belong to the last one."""
    from aiowheel.jobs.spark.layout import RowTime
    from aiowheel.jobs.spark.sinks import BatchFolders

    sink = BatchFolders(tmp_path / "out", tmp_path / "checkpoint", RowTime("n", Unit.S))
    first = [DAY + 5, 3, DAY, 2**61 - 1, DAY - 1, 1]
    for _ in range(2):
        assert sink.write(numbers(spark, *first).repartition(4), 0) == 6
    assert sink.write(numbers(spark, DAY + 7, DAY + 6).repartition(2), 1) == 2

    assert files(sink.folder) == {
        "batch_id=000000/day=1970-01-01": [[1, 3, DAY - 1]],
        "batch_id=000000/day=1970-01-02": [[DAY, DAY + 5]],
        "batch_id=000000/day=9999-12-31": [[2**61 - 1]],
        "batch_id=000001/day=1970-01-02": [[DAY + 6, DAY + 7]],
    }
    assert sorted(written(sink.folder)) == sorted([*first, DAY + 6, DAY + 7])
    of_a_day = spark.read.parquet(str(sink.folder)).where("day = '1970-01-02'")
    assert of_a_day.columns == ["n", "batch_id", "day"]
    assert of_a_day.count() == 4


@pytest.mark.usefixtures("streaming")
def test_many_rows_are_several_files(spark: "SparkSession", tmp_path: Path) -> None:
    """Spark's target for the size of a part decides, also for rows of one day."""
    from aiowheel.jobs.spark.layout import RowTime
    from aiowheel.jobs.spark.sinks import BatchFolders

    target = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
    sink = BatchFolders(tmp_path / "out", tmp_path / "checkpoint", RowTime("n", Unit.MS))
    spark.conf.set(target, "50k")
    try:
        sink.write(spark.range(100_000).toDF("n").repartition(8), 0)
    finally:
        spark.conf.unset(target)

    (parts,) = files(sink.folder).values()
    assert len(parts) > 1
    assert all(part == sorted(part) for part in parts)
    assert sorted(n for part in parts for n in part) == list(range(100_000))


@pytest.fixture(params=["static", "dynamic"])
def overwrite_mode(spark: "SparkSession", request: pytest.FixtureRequest) -> Iterator[None]:
    """Set what `overwrite` means for a folder of partitions, as clusters do."""
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", request.param)
    yield
    spark.conf.unset("spark.sql.sources.partitionOverwriteMode")


@pytest.mark.usefixtures("overwrite_mode")
def test_days_on_an_object_store(spark: "SparkSession", tmp_path: Path) -> None:
    """The file `_SUCCESS` is that of all days of a batch, and a complete batch stays."""
    from aiowheel.jobs.spark.hadoop import HadoopFolders, read_whole_folders
    from aiowheel.jobs.spark.layout import RowTime

    folder = a_folder(tmp_path / "out")
    sink = HadoopFolders(spark, folder, a_folder(tmp_path / "checkpoint"), RowTime("n", Unit.S))
    rows = numbers(spark, 2, 1, DAY + 1, DAY).repartition(4)
    assert sink.write(rows, 3) == 4
    (tmp_path / "out" / "batch_id=000003" / "_SUCCESS").unlink()
    assert read_whole_folders(spark, folder, SCHEMA).count() == 0

    for _ in range(2):
        assert sink.write(rows, 3) == 4

    assert files(tmp_path / "out") == {
        "batch_id=000003/day=1970-01-01": [[1, 2]],
        "batch_id=000003/day=1970-01-02": [[DAY, DAY + 1]],
    }
    whole = read_whole_folders(spark, folder, SCHEMA)
    assert whole.columns == ["n"]
    assert whole.count() == 4


def a_folder(path: Path) -> "Folder":
    """Return a folder for Hadoop, which treats a disk as it treats an object store."""
    from aiowheel.jobs.spark.uris import Folder

    return Folder(f"file://{path}", "file")


def test_two_streams_do_not_share_a_folder_on_an_object_store(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """The second one would take the batches of the first one for its own, and lose its rows."""
    from aiowheel.jobs.spark.hadoop import HadoopFolders, read_whole_folders

    out = a_folder(tmp_path / "out")
    first, second = (a_folder(begun(tmp_path / name, name)) for name in ("a", "b"))
    sinks = [HadoopFolders(spark, out, checkpoint) for checkpoint in (first, second)]
    sinks[0].write(numbers(spark), 0)

    with pytest.raises(BadInputError, match=r"out: holds the batches of another .* of \S+/b$"):
        sinks[1].write(numbers(spark, 1), 0)
    with pytest.raises(BadInputError, match=r"out: holds the batches of another .* of \S+/b$"):
        HadoopFolders(spark, out, second)
    HadoopFolders(spark, out, first).write(numbers(spark, 2), 1)
    assert [row.n for row in read_whole_folders(spark, out, SCHEMA).collect()] == [2]
    assert (tmp_path / "out" / "_aiowheel_stream").read_text() == "a"


def test_two_streams_that_claim_a_folder_at_once(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one has seen no owner yet; the file of the first one is not overwritten."""
    from aiowheel.jobs.spark import hadoop

    out = a_folder(tmp_path / "out")
    first, second = (
        hadoop.HadoopFolders(spark, out, a_folder(begun(tmp_path / name, name))) for name in "ab"
    )
    write_text = hadoop._write_text

    def write_second(*arguments: Any, **named: Any) -> None:
        monkeypatch.setattr(hadoop, "_write_text", write_text)
        first.write(numbers(spark, 1), 0)
        write_text(*arguments, **named)

    monkeypatch.setattr(hadoop, "_write_text", write_second)

    with pytest.raises(BadInputError, match="holds the batches of another stream"):
        second.write(numbers(spark, 2), 0)

    assert (tmp_path / "out" / "_aiowheel_stream").read_text() == "a"


@pytest.mark.parametrize("owner", [None, ""], ids=["earlier release", "crash"])
def test_a_stream_claims_its_folder_on_an_object_store(
    spark: "SparkSession", tmp_path: Path, owner: str | None
) -> None:
    """An earlier release wrote no owner; a crash on HDFS can leave an empty file."""
    from aiowheel.jobs.spark.hadoop import HadoopFolders

    (tmp_path / "out" / "batch_id=000000").mkdir(parents=True)
    if owner is not None:
        (tmp_path / "out" / "_aiowheel_stream").write_text(owner)
    out, checkpoint = a_folder(tmp_path / "out"), a_folder(begun(tmp_path / "a", "a"))

    HadoopFolders(spark, out, checkpoint).write(numbers(spark, 1), 1)

    assert (tmp_path / "out" / "_aiowheel_stream").read_text() == "a"


@pytest.mark.parametrize("name", ["batch_id=000000", "part-0.parquet"])
def test_a_new_stream_does_not_add_to_rows_on_an_object_store(
    spark: "SparkSession", tmp_path: Path, name: str
) -> None:
    """Without an owner, the folder is that of an earlier release or of a batch."""
    from aiowheel.jobs.spark.hadoop import HadoopFolders

    (tmp_path / "out" / name).mkdir(parents=True)

    with pytest.raises(BadInputError, match="holds the batches of another stream"):
        HadoopFolders(spark, a_folder(tmp_path / "out"), a_folder(tmp_path / "checkpoint"))


@pytest.mark.parametrize(
    ("name", "flaw"),
    [
        ("a/notes.txt", "would be replaced, but holds a/notes.txt, which is no file of a result"),
        ("_aiowheel_stream", "holds the batches of a stream"),
        ("batch_id=000000/part-0.parquet", "holds the batches of a stream"),
    ],
)
def test_a_batch_does_not_delete_the_files_of_others_on_an_object_store(
    spark: "SparkSession", tmp_path: Path, name: str, flaw: str
) -> None:
    """Spark's writer empties the folder, which may hold the input or the rows of a stream."""
    from aiowheel.jobs.spark.hadoop import check_folder

    foreign = tmp_path / "a b" / name
    foreign.parent.mkdir(parents=True)
    foreign.write_text("")

    with pytest.raises(BadInputError, match=f"a b: {flaw}"):
        check_folder(spark, a_folder(tmp_path / "a b"))
    with pytest.raises(BadInputError, match="must be a folder for a table, and is a file"):
        check_folder(spark, a_folder(foreign))


def test_a_batch_replaces_its_earlier_result_on_an_object_store(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """Whatever files Spark has written; a folder that is missing is not created."""
    from aiowheel.jobs.spark.hadoop import check_folder, replace_files

    out = a_folder(tmp_path / "out")
    for values in ((1, 2), (3,)):
        check_folder(spark, out)
        assert replace_files(numbers(spark, *values), out) == len(values)

    assert pq.read_table(tmp_path / "out")["n"].to_pylist() == [3]
