"""Where a stream writes its result: one Parquet folder a micro-batch, each exactly once. Rank 5.

Spark repeats a micro-batch whose end it did not see: after a crash, with the same rows and the same
number. A folder named by that number and replaced as a whole makes the repetition harmless, for
every reader. Spark's own file sink is exact for those readers only that know its log.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.errors import AiowheelError, BadInputError

PREFIX = "batch_id="  #: of the name of a batch's folder


class BatchFolders:
    """The folders `batch_id=000000`, `batch_id=000001`, ... of one stream; give it to foreachBatch.

    A folder is written beside its place under a hidden name, forced to the disk and renamed, so a
    reader sees it whole or not at all. A batch without rows leaves no folder.

    Args:
        folder: Made when missing; on a disk that driver and executors share.
        checkpoint: Of the stream; one checkpoint goes with one folder.

    Raises:
        BadInputError: The folder holds batches and the checkpoint is new: numbers would begin at 0
            again and replace what another stream wrote.
    """

    def __init__(self, folder: Path, checkpoint: Path) -> None:
        self.folder = folder
        if not (checkpoint / "commits").exists() and next(batch_folders(folder), None) is not None:
            raise BadInputError(
                f"{folder}: holds the batches of another stream: choose another folder, or the "
                f"checkpoint that goes with it instead of {checkpoint}"
            )

    def write(self, frame: DataFrame, batch_id: int) -> int:
        """Put the rows of *frame* into the folder of *batch_id*, in place of what is there.

        Returns:
            How many rows that were.

        Cost: one action on *frame*.
        """
        return replace_folder(frame, self.folder / f"{PREFIX}{batch_id:06d}")


def replace_folder(frame: DataFrame, place: Path) -> int:
    """Write *frame* as Parquet beside *place*, then put it there; no rows leave no folder.

    Returns:
        How many rows that were.

    Raises:
        AiowheelError: Fewer or more rows can be read back than were written, as where executors
            write to disks of their own; *place* is left as it was.

    Cost: one action on *frame*.
    """
    place = place.absolute()  # to Spark, what stands before a colon is a scheme
    place.parent.mkdir(parents=True, exist_ok=True)
    hidden = place.with_name(f".{place.name}.tmp")
    rows = Observation()
    counted = frame.observe(rows, F.count(F.lit(1)).alias("rows"))
    try:
        counted.write.mode("overwrite").option("compression", "zstd").parquet(str(hidden))
        count = int(rows.get["rows"])
        _compare(place, count, _rows_in(hidden))
        if count:
            _force_to_disk(hidden)
        # A repeated batch holds what the folder of its number holds already.
        shutil.rmtree(place, ignore_errors=True)
        if count:
            hidden.rename(place)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
    return count


def _rows_in(folder: Path) -> int:
    """How many rows the driver finds; a part that it cannot read has none."""
    rows = 0
    for file in folder.glob("*.parquet"):
        with contextlib.suppress(OSError, pa.ArrowException):
            rows += int(pq.read_metadata(file).num_rows)
    return rows


def _compare(place: Path, written: int, found: int) -> None:
    if found != written:
        raise AiowheelError(
            f"{place}: {written:,} rows were written, {found:,} can be read back: driver and "
            "executors must share the disk of the output"
        )


def batch_folders(folder: Path) -> Iterator[Path]:
    """The finished folders in *folder*, by their number."""
    yield from sorted(folder.glob(f"{PREFIX}*"), key=lambda path: int(path.name[len(PREFIX) :]))


def read_batches(folder: Path, schema: pa.Schema) -> pa.Table:
    """Read what a stream has written so far, in the order of its batches, without Spark."""
    tables = [read_folder(batch, schema) for batch in batch_folders(folder)]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def read_folder(folder: Path, schema: pa.Schema) -> pa.Table:
    """Read one folder of Parquet files, which may be missing."""
    files = sorted(folder.glob("*.parquet"))
    tables = [pq.ParquetFile(file).read(columns=schema.names).cast(schema) for file in files]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _force_to_disk(folder: Path) -> None:
    for path in (*folder.iterdir(), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
