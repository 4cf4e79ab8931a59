"""The folders that a stream writes, one a micro-batch."""

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
    """A sink of a stream that begins."""
    from aiowheel.jobs.spark.sinks import BatchFolders

    return BatchFolders(tmp_path / "out", tmp_path / "checkpoint")


def numbers(spark: "SparkSession", *values: int) -> "DataFrame":
    """A frame of one column."""
    return spark.createDataFrame([(value,) for value in values], "n bigint")


def written(folder: Path) -> list[int]:
    """What a reader finds, in the order of the batches."""
    from aiowheel.jobs.spark.sinks import read_batches

    values: list[int] = read_batches(folder, SCHEMA).column("n").to_pylist()
    return values


def test_a_repeated_batch_replaces_itself(spark: "SparkSession", sink: "BatchFolders") -> None:
    """What Spark does again after a crash is there once."""
    assert sink.write(numbers(spark, 1, 2), 0) == 2
    assert sink.write(numbers(spark, 3), 1) == 1

    assert sink.write(numbers(spark, 3), 1) == 1

    assert sorted(written(sink.folder)) == [1, 2, 3]
    assert sorted(path.name for path in sink.folder.iterdir()) == [
        "batch_id=000000",
        "batch_id=000001",
    ]


def test_what_a_crash_left_is_not_read(spark: "SparkSession", sink: "BatchFolders") -> None:
    """A folder that was being written has a hidden name, and is written anew."""
    half = sink.folder / ".batch_id=000000.tmp"
    half.mkdir(parents=True)
    (half / "part-0.parquet").write_bytes(b"")
    assert written(sink.folder) == []

    sink.write(numbers(spark, 1), 0)

    assert written(sink.folder) == [1]
    assert not half.exists()


def test_a_batch_without_rows_leaves_no_folder(spark: "SparkSession", sink: "BatchFolders") -> None:
    """A quiet stream does not fill the disk with empty files."""
    assert sink.write(numbers(spark), 7) == 0

    assert list(sink.folder.iterdir()) == []


def test_two_streams_do_not_share_a_folder(
    spark: "SparkSession", sink: "BatchFolders", tmp_path: Path
) -> None:
    """A new checkpoint counts from 0 and would replace what is there."""
    from aiowheel.jobs.spark.sinks import BatchFolders

    sink.write(numbers(spark, 1), 0)

    with pytest.raises(BadInputError, match="holds the batches of another stream"):
        BatchFolders(sink.folder, tmp_path / "another")


def test_a_stream_goes_on_in_its_folder(
    spark: "SparkSession", sink: "BatchFolders", tmp_path: Path
) -> None:
    """With its checkpoint it comes back to it."""
    from aiowheel.jobs.spark.sinks import BatchFolders

    sink.write(numbers(spark, 1), 0)
    (tmp_path / "checkpoint" / "commits").mkdir(parents=True)

    BatchFolders(sink.folder, tmp_path / "checkpoint").write(numbers(spark, 2), 1)

    assert written(sink.folder) == [1, 2]


def test_parts_that_vanish_are_a_failure(
    spark: "SparkSession", sink: "BatchFolders", monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where an executor writes to a disk of its own; a repeated batch leaves what there was."""
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
