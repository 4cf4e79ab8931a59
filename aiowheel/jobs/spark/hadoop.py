"""A stream's Parquet folders on HDFS or an object store. Rank 5.

As in `sinks`, which is for local folders, each micro-batch has a folder with its number. An object
store cannot rename a folder atomically, so Spark writes the folder in place and finally creates the
file `_SUCCESS`, a single object: a folder with it is complete. Readers must ignore incomplete
folders; `read_whole_folders` does. A repeated micro-batch keeps a complete folder and replaces an
incomplete one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from aiowheel._outputs import BATCH_PREFIX
from aiowheel.errors import BadInputError
from aiowheel.jobs.spark.layout import RowTime, in_few_parts, write_files
from aiowheel.jobs.spark.uris import Folder
from aiowheel.jobs.spark.values import ddl

_WHOLE: Final = "_SUCCESS"


class HadoopFolders:
    """The folders `batch_id=000000`, `batch_id=000001`, ... of one stream; give it to foreachBatch.

    A batch without rows creates no folder. Days and files are those of `BatchFolders`.

    Args:
        spark: The session.
        folder: The parent folder; created if missing.
        is_new: Whether the stream is new: its checkpoint does not exist yet.
        time: The time of the rows; None for rows without one.

    Raises:
        BadInputError: The folder holds batches although the stream is new: its numbers would start
            at 0 and collide with the batches of another stream.
    """

    def __init__(
        self, spark: SparkSession, folder: Folder, *, is_new: bool, time: RowTime | None = None
    ) -> None:
        self.folder = folder
        self._time = time
        if is_new and _batches(spark, folder):
            raise BadInputError(
                f"{folder.path}: holds the batches of another stream: choose another folder, or "
                "the checkpoint that goes with it"
            )

    def write(self, frame: DataFrame, batch_id: int) -> int:
        """Write the rows of *frame* to the folder of *batch_id*, unless that is complete already.

        Returns:
            The number of these rows.

        Cost: one action on *frame*.
        """
        path = f"{self.folder.for_spark}/{BATCH_PREFIX}{batch_id:06d}"
        if exists(frame.sparkSession, f"{path}/{_WHOLE}"):
            return frame.count()  # a stateful query must process every batch, written or not
        place = Folder(path, self.folder.scheme)
        with in_few_parts(frame, self._time) as (rows, by):
            return replace_files(rows, place, by)


def replace_files(frame: DataFrame, folder: Folder, by: Sequence[str] = ()) -> int:
    """Replace the contents of *folder* by *frame* as Parquet; without rows, there is no folder.

    Args:
        frame: The rows.
        folder: The folder.
        by: Columns whose values have folders of their own in *folder*.

    Returns:
        The number of rows.

    Cost: one action on *frame*.
    """
    # A cluster's settings may switch off _SUCCESS, the file that marks a complete folder.
    marked = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "true"}
    count = write_files(frame, folder.for_spark, by, **marked)
    if not count:
        system, path = _file_system(frame.sparkSession, folder.for_spark)
        system.delete(path, True)
    return count


def read_whole_folders(spark: SparkSession, folder: Folder, schema: pa.Schema) -> DataFrame:
    """Read the rows that a stream has written so far: those of the complete folders.

    Args:
        spark: The session.
        folder: The folder of the sink; it may be missing.
        schema: The schema of the rows.
    """
    whole = [path for path in _batches(spark, folder) if exists(spark, f"{path}/{_WHOLE}")]
    if not whole:
        return spark.createDataFrame([], ddl(schema))
    patterns = [Folder(path, folder.scheme).pattern for path in whole]
    return spark.read.schema(ddl(schema)).parquet(*patterns).select(*schema.names)


def exists(spark: SparkSession, path: str) -> bool:
    """Return whether a file or folder exists."""
    system, hadoop_path = _file_system(spark, path)
    return bool(system.exists(hadoop_path))


def _batches(spark: SparkSession, folder: Folder) -> list[str]:
    system, path = _file_system(spark, folder.for_spark)
    if not system.exists(path):
        return []
    names = [status.getPath().getName() for status in system.listStatus(path)]
    return [f"{folder.for_spark}/{name}" for name in sorted(names) if name.startswith(BATCH_PREFIX)]


def _file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm  # PySpark has no public access to Hadoop
    java_spark: Any = spark._jsparkSession
    hadoop_path = jvm.org.apache.hadoop.fs.Path(path)
    return hadoop_path.getFileSystem(java_spark.sessionState().newHadoopConf()), hadoop_path
