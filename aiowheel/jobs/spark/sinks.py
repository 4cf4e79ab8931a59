"""A stream's results as one Parquet folder per micro-batch, each exactly once. Rank 5.

Spark repeats an unfinished micro-batch after a crash, with the same rows and the same number. The
repetition replaces the folder of that number as a whole, so every reader sees each row once.
Spark's own file sink is exactly-once only for readers that use its log.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from aiowheel._outputs import BATCH_PREFIX, STREAM_OWNER, sync_folder, whole_file
from aiowheel.errors import AiowheelError, BadInputError
from aiowheel.jobs.spark.layout import RowTime, in_few_parts, write_files
from aiowheel.jobs.spark.uris import spark_file


class BatchFolders:
    """The folders `batch_id=000000`, `batch_id=000001`, ... of one stream; give it to foreachBatch.

    A folder is written under a hidden name next to its final one, synced to disk and renamed, so a
    reader sees it complete or not at all. A batch without rows creates no folder. Rows with a time
    lie in a folder for each day, such as `batch_id=000007/day=2026-11-23`, in few files.

    Args:
        folder: The parent folder, on a disk that driver and executors share; created if missing.
        checkpoint: The checkpoint of the stream; each checkpoint has its own folder.
        time: The time of the rows, which divides them into days and sorts each file; None for
            rows without one.

    The first batch of a stream writes the stream's id to the folder.

    Raises:
        BadInputError: The folder has the id of another stream; or the checkpoint is new, and the
            folder holds batches or another table. Both streams would number their batches from 0
            and replace those of the other one.
    """

    def __init__(self, folder: Path, checkpoint: Path, time: RowTime | None = None) -> None:
        self.folder = folder
        self._checkpoint = checkpoint
        self._time = time
        self._is_claimed = False
        owner = self._owner()
        is_new = not (checkpoint / "commits").exists()
        is_taken = is_new and _holds_rows(folder) if owner is None else owner != self._stream()
        if is_taken:
            raise another_stream(self.folder, self._checkpoint)

    def write(self, frame: DataFrame, batch_id: int) -> int:
        """Write the rows of *frame* to the folder of *batch_id*, replacing its contents.

        Returns:
            The number of these rows.

        Raises:
            BadInputError: Another stream has begun to write to the folder meanwhile.

        Cost: one action on *frame*.
        """
        self._claim()
        place = self.folder / f"{BATCH_PREFIX}{batch_id:06d}"
        with in_few_parts(frame, self._time) as (rows, by):
            return replace_folder(rows, place, by)

    def _claim(self) -> None:
        if self._is_claimed or (stream := self._stream()) is None:
            return
        owner = self._owner()
        if owner not in {None, stream}:
            raise another_stream(self.folder, self._checkpoint)
        if owner is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            with whole_file(self.folder / STREAM_OWNER) as file:
                file.write(stream)
        self._is_claimed = True

    def _owner(self) -> str | None:
        try:
            return (self.folder / STREAM_OWNER).read_text()
        except FileNotFoundError:
            return None

    def _stream(self) -> str | None:
        """Return the stream's id, which Spark stores in the checkpoint before the first batch."""
        try:
            return stream_id((self._checkpoint / "metadata").read_text())
        except FileNotFoundError:
            return None


def stream_id(metadata: str) -> str:
    """Return the id of a stream from the text of the file `metadata` of its checkpoint."""
    return str(json.loads(metadata)["id"])


def another_stream(folder: str | Path, checkpoint: str | Path) -> BadInputError:
    """Return the error for a *folder* that does not belong to the stream of *checkpoint*."""
    return BadInputError(
        f"{folder}: holds the batches of another stream: choose another folder, or the "
        f"checkpoint that goes with it instead of {checkpoint}"
    )


def _holds_rows(folder: Path) -> bool:
    return any(folder.glob(f"{BATCH_PREFIX}*")) or any(folder.glob("*.parquet"))


def replace_folder(
    frame: DataFrame, place: Path, by: Sequence[str] = (), *, keep_empty: bool = False
) -> int:
    """Write *frame* as Parquet next to *place*, then move it there.

    A link stays: the folder that it points to is replaced.

    Args:
        frame: The rows.
        place: The folder.
        by: Columns whose values have folders of their own in *place*.
        keep_empty: Whether a frame without rows creates a folder; its file has only the schema.

    Returns:
        The number of these rows.

    Raises:
        AiowheelError: The number of rows read back differs from the number written, for example
            because executors write to their own disks; *place* stays unchanged.

    Cost: one action on *frame*.
    """
    place = Path(os.path.realpath(place))
    place.parent.mkdir(parents=True, exist_ok=True)
    hidden = place.with_name(f".{place.name}.tmp")
    try:
        count = write_files(frame, spark_file(hidden), by)
        check_rows_in(hidden, place, count)
        is_kept = keep_empty or count > 0
        if is_kept:
            _force_to_disk(hidden)
        # For a repeated batch, the folder of its number holds the same rows.
        shutil.rmtree(place, ignore_errors=True)
        if is_kept:
            hidden.rename(place)
            sync_folder(place.parent)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
    return count


def check_rows_in(folder: Path, place: Path, written: int) -> None:
    """Check that the driver can read the rows that the executors have written to *folder*.

    Args:
        folder: The folder of Parquet; an unreadable part has no rows.
        place: The place of the result, for the error.
        written: The number of rows.

    Raises:
        AiowheelError: The numbers differ.
    """
    rows = 0
    for file in folder.rglob("*.parquet"):
        with contextlib.suppress(OSError, pa.ArrowException):
            rows += int(pq.read_metadata(file).num_rows)
    if rows != written:
        raise AiowheelError(
            f"{place}: {written:,} rows were written, {rows:,} can be read back: driver and "
            "executors must share the disk of the output"
        )


def batch_folders(folder: Path) -> Iterator[Path]:
    """Yield the finished folders in *folder*, in the order of their numbers."""
    yield from sorted(
        folder.glob(f"{BATCH_PREFIX}*"), key=lambda path: int(path.name[len(BATCH_PREFIX) :])
    )


def read_batches(folder: Path, schema: pa.Schema) -> pa.Table:
    """Read the rows that a stream has written so far, in batch order, without Spark."""
    tables = [read_folder(batch, schema) for batch in batch_folders(folder)]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def read_folder(folder: Path, schema: pa.Schema) -> pa.Table:
    """Read a folder of Parquet files, at any depth; a missing folder has no rows."""
    files = sorted(folder.rglob("*.parquet"))
    tables = [pq.ParquetFile(file).read(columns=schema.names).cast(schema) for file in files]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _force_to_disk(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
