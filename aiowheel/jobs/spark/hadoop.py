"""A stream's Parquet folders that are not on this machine: on HDFS or an object store. Rank 5.

As in `sinks`, which is for folders of this machine, each micro-batch has a folder by its number.
An object store has no rename of a folder, so a folder is written in its place, and is whole once
Spark has put the file `_SUCCESS` there, which is one object and comes last. Readers take whole
folders only: `read_whole_folders` does. A repeated micro-batch leaves a whole folder as it is, and
replaces any other.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.errors import BadInputError
from aiowheel.jobs.spark.sinks import PREFIX
from aiowheel.jobs.spark.uris import Folder
from aiowheel.jobs.spark.values import ddl

_WHOLE: Final = "_SUCCESS"


class HadoopFolders:
    """The folders `batch_id=000000`, `batch_id=000001`, ... of one stream; give it to foreachBatch.

    A batch without rows leaves no folder.

    Args:
        spark: The session.
        folder: Made when missing.
        is_new: Whether the stream begins: its checkpoint does not exist yet.

    Raises:
        BadInputError: The folder holds batches and the stream is new: numbers would begin at 0
            again and meet what another stream wrote.
    """

    def __init__(self, spark: SparkSession, folder: Folder, *, is_new: bool) -> None:
        self.folder = folder
        if is_new and _batches(spark, folder):
            raise BadInputError(
                f"{folder.path}: holds the batches of another stream: choose another folder, or "
                "the checkpoint that goes with it"
            )

    def write(self, frame: DataFrame, batch_id: int) -> int:
        """Put the rows of *frame* into the folder of *batch_id*, unless it is whole already.

        Returns:
            How many rows that were.

        Cost: one action on *frame*.
        """
        path = f"{self.folder.path}/{PREFIX}{batch_id:06d}"
        if exists(frame.sparkSession, f"{path}/{_WHOLE}"):
            return frame.count()  # a query with state must work the batch off, written or not
        return replace_files(frame, Folder(path, self.folder.scheme))


def replace_files(frame: DataFrame, folder: Folder) -> int:
    """Write *frame* as Parquet in place of what *folder* holds; no rows leave no folder.

    Returns:
        How many rows that were.

    Cost: one action on *frame*.
    """
    rows = Observation()
    counted = frame.observe(rows, F.count(F.lit(1)).alias("rows"))
    settings: Any = counted.write.mode("overwrite").options(compression="zstd")
    # A cluster's own settings may leave out the file that makes a folder whole.
    settings.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "true").parquet(folder.path)
    count = int(rows.get["rows"])
    if not count:
        system, path = _file_system(frame.sparkSession, folder.path)
        system.delete(path, True)
    return count


def read_whole_folders(spark: SparkSession, folder: Folder, schema: pa.Schema) -> DataFrame:
    """Read what a stream has written so far: the rows of its whole folders.

    Args:
        spark: The session.
        folder: As the sink has it; it may be missing.
        schema: Of the rows.
    """
    whole = [path for path in _batches(spark, folder) if exists(spark, f"{path}/{_WHOLE}")]
    if not whole:
        return spark.createDataFrame([], ddl(schema))
    patterns = [Folder(path, folder.scheme).pattern for path in whole]
    return spark.read.schema(ddl(schema)).parquet(*patterns)


def exists(spark: SparkSession, path: str) -> bool:
    """Whether there is a file or folder."""
    system, hadoop_path = _file_system(spark, path)
    return bool(system.exists(hadoop_path))


def _batches(spark: SparkSession, folder: Folder) -> list[str]:
    system, path = _file_system(spark, folder.path)
    if not system.exists(path):
        return []
    names = [status.getPath().getName() for status in system.listStatus(path)]
    return [f"{folder.path}/{name}" for name in sorted(names) if name.startswith(PREFIX)]


def _file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm  # PySpark has no other door to Hadoop
    java_spark: Any = spark._jsparkSession
    hadoop_path = jvm.org.apache.hadoop.fs.Path(path)
    return hadoop_path.getFileSystem(java_spark.sessionState().newHadoopConf()), hadoop_path
