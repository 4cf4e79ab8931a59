"""The folders that a stream writes, one per micro-batch."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from aiowheel.errors import AiowheelError, BadInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from aiowheel.jobs.spark.sinks import BatchFolders

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = pa.schema([("n", pa.int64())])


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
        parts = sorted(Path(path).glob("part-*"), key=lambda part: part.stat().st_size)
        parts[-1].unlink()
        parts[0].write_bytes(b"PAR1")

    monkeypatch.setattr(DataFrameWriter, "parquet", lose_a_part)

    with pytest.raises(AiowheelError, match=r"batch_id=000000: 3 rows were written, 0 can be read"):
        sink.write(numbers(spark, 1, 2, 3).repartition(2), 0)

    assert sorted(written(sink.folder)) == [1, 2, 3]
    assert [path.name for path in sink.folder.iterdir()] == ["batch_id=000000"]
