"""A stream's Parquet folders on HDFS or an object store. Rank 5.

As in `sinks`, which is for local folders, each micro-batch has a folder with its number. An object
store cannot rename a folder atomically, so Spark writes the folder in place and finally creates the
file `_SUCCESS`, a single object: a folder with it is complete. Readers must ignore incomplete
folders; `read_whole_folders` does. A repeated micro-batch keeps a complete folder and replaces an
incomplete one.

Hadoop can create a file without overwriting one. On HDFS this is atomic; S3A asks the store first
and then writes, unless it uses conditional writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from aiowheel._outputs import BATCH_PREFIX, STREAM_OWNER, check_files
from aiowheel.errors import BadInputError
from aiowheel.jobs.spark.layout import RowTime, in_few_parts, write_files
from aiowheel.jobs.spark.sinks import another_stream, stream_id
from aiowheel.jobs.spark.uris import Folder
from aiowheel.jobs.spark.values import ddl

_WHOLE: Final = "_SUCCESS"


class HadoopFolders:
    """The folders `batch_id=000000`, `batch_id=000001`, ... of one stream; give it to foreachBatch.

    A batch without rows creates no folder. Days and files are those of `BatchFolders`.

    Args:
        spark: The session.
        folder: The parent folder; created if missing.
        checkpoint: The checkpoint of the stream; each checkpoint has its own folder.
        time: The time of the rows; None for rows without one.

    The first batch of a stream writes the stream's id to the folder.

    Raises:
        BadInputError: The folder has the id of another stream; or the checkpoint is new, and the
            folder holds batches or another table. Both streams would number their batches from 0,
            and each would take those of the other one for its own.
    """

    def __init__(
        self, spark: SparkSession, folder: Folder, checkpoint: Folder, time: RowTime | None = None
    ) -> None:
        self.folder = folder
        self._checkpoint = checkpoint
        self._time = time
        self._is_claimed = False
        owner = self._owner(spark)
        if owner:
            is_taken = owner != self._stream(spark)
        else:
            is_new = not exists(spark, f"{checkpoint.for_spark}/commits")
            is_taken = is_new and _holds_rows(spark, folder)
        if is_taken:
            raise another_stream(folder.path, checkpoint.path)

    def write(self, frame: DataFrame, batch_id: int) -> int:
        """Write the rows of *frame* to the folder of *batch_id*, unless that is complete already.

        Returns:
            The number of these rows.

        Raises:
            BadInputError: Another stream has begun to write to the folder meanwhile.

        Cost: one action on *frame*.
        """
        self._claim(frame.sparkSession)
        path = f"{self.folder.for_spark}/{BATCH_PREFIX}{batch_id:06d}"
        if exists(frame.sparkSession, f"{path}/{_WHOLE}"):
            return frame.count()  # a stateful query must process every batch, written or not
        place = Folder(path, self.folder.scheme)
        with in_few_parts(frame, self._time) as (rows, by):
            return replace_files(rows, place, by)

    def _claim(self, spark: SparkSession) -> None:
        if self._is_claimed or (stream := self._stream(spark)) is None:
            return
        owner = self._owner(spark)
        if not owner:
            try:
                # A crash on HDFS can leave the file without its text, which belongs to no stream.
                _write_text(spark, self._owner_file, stream, overwrite=owner is not None)
                owner = stream
            except Py4JJavaError:
                owner = self._owner(spark)  # another stream may have created the file meanwhile
                if not owner:
                    raise
        if owner != stream:
            raise another_stream(self.folder.path, self._checkpoint.path)
        self._is_claimed = True

    @property
    def _owner_file(self) -> str:
        return f"{self.folder.for_spark}/{STREAM_OWNER}"

    def _owner(self, spark: SparkSession) -> str | None:
        return _read_text(spark, self._owner_file)

    def _stream(self, spark: SparkSession) -> str | None:
        """Return the stream's id, which Spark stores in the checkpoint before the first batch."""
        text = _read_text(spark, f"{self._checkpoint.for_spark}/metadata")
        return None if text is None else stream_id(text)


def replace_files(
    frame: DataFrame, folder: Folder, by: Sequence[str] = (), *, keep_empty: bool = False
) -> int:
    """Replace the contents of *folder* by *frame* as Parquet.

    Args:
        frame: The rows.
        folder: The folder.
        by: Columns whose values have folders of their own in *folder*.
        keep_empty: Whether a frame without rows creates a folder; its file has only the schema.

    Returns:
        The number of rows.

    Cost: one action on *frame*.
    """
    # A cluster's settings may switch off _SUCCESS, the file that marks a complete folder.
    marked = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "true"}
    count = write_files(frame, folder.for_spark, by, **marked)
    if not (count or keep_empty):
        system, path = _file_system(frame.sparkSession, folder.for_spark)
        system.delete(path, True)
    return count


def check_folder(spark: SparkSession, folder: Folder) -> None:
    """Refuse a folder that `replace_files` would empty of the files of others.

    Raises:
        BadInputError: It is a file; or see `check_files`.

    Cost: lists the files in *folder*, at every depth.
    """
    system, path = _file_system(spark, folder.for_spark)
    if not system.exists(path):
        return
    root = system.getFileStatus(path)
    if root.isFile():
        raise BadInputError(f"{folder.path}: must be a folder for a table, and is a file")
    check_files(folder.path, _relative_names(system, root.getPath()))


def _relative_names(system: Any, root: Any) -> Iterator[str]:
    files = system.listFiles(root, True)
    while files.hasNext():
        path = files.next().getPath()
        yield str(root.toUri().relativize(path.toUri()).getPath())


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
    names = [name for name in _names(spark, folder) if name.startswith(BATCH_PREFIX)]
    return [f"{folder.for_spark}/{name}" for name in names]


def _holds_rows(spark: SparkSession, folder: Folder) -> bool:
    names = _names(spark, folder)
    return any(name.startswith(BATCH_PREFIX) or name.endswith(".parquet") for name in names)


def _names(spark: SparkSession, folder: Folder) -> list[str]:
    system, path = _file_system(spark, folder.for_spark)
    if not system.exists(path):
        return []
    return sorted(str(status.getPath().getName()) for status in system.listStatus(path))


def _read_text(spark: SparkSession, path: str) -> str | None:
    system, hadoop_path = _file_system(spark, path)
    if not system.exists(hadoop_path):
        return None
    file = system.open(hadoop_path)
    try:
        return bytes(file.readAllBytes()).decode()
    finally:
        file.close()


def _write_text(spark: SparkSession, path: str, text: str, *, overwrite: bool) -> None:
    system, hadoop_path = _file_system(spark, path)
    file = system.create(hadoop_path, overwrite)
    try:
        file.write(text.encode())
    finally:
        file.close()


def _file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm  # PySpark has no public access to Hadoop
    java_spark: Any = spark._jsparkSession
    hadoop_path = jvm.org.apache.hadoop.fs.Path(path)
    return hadoop_path.getFileSystem(java_spark.sessionState().newHadoopConf()), hadoop_path
