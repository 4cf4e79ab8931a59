"""The targets of results, by URI: folders of Parquet, Delta tables, Kafka topics. Rank 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from aiowheel.errors import BadInputError, MissingExtraError

try:
    from pyspark.sql import DataFrame, SparkSession
except ImportError as _error:
    raise MissingExtraError("spark") from _error

from aiowheel._outputs import check_table
from aiowheel.jobs.spark.delta import DeltaAppends, replace_table
from aiowheel.jobs.spark.hadoop import HadoopFolders, check_folder, replace_files
from aiowheel.jobs.spark.kafka import TopicRecords
from aiowheel.jobs.spark.layout import RowTime
from aiowheel.jobs.spark.sinks import BatchFolders, replace_folder
from aiowheel.jobs.spark.uris import Folder, Table, Topic, parse_uri


class Sink(Protocol):
    """The interface of a sink for the micro-batches of one stream."""

    def write(self, frame: DataFrame, batch_id: int, /) -> int:
        """Write the rows of a micro-batch, possibly a repeated one; return their number."""
        ...


def open_sink(
    spark: SparkSession,
    uri: str,
    *,
    checkpoint: str,
    key: Sequence[str],
    time: RowTime | None = None,
    options: Mapping[str, str] | None = None,
) -> Sink:
    """Open the sink of a stream; pass its `write` to foreachBatch.

    Args:
        spark: The session.
        uri: The URI of a folder, a topic or a Delta table. A folder and a Delta table hold each
            micro-batch exactly once, a topic at least once.
        checkpoint: The checkpoint of the stream: a path, or the URI of a folder.
        key: The columns that identify a row; they become the keys of a topic's records.
        time: The time of the rows, by which a folder divides them into days and sorts each file.
        options: Additional options for the writer of a topic, such as ``kafka.security.protocol``.

    Raises:
        BadInputError: A URI is invalid, or the folder belongs to another stream.
    """
    place = parse_uri(uri)
    if isinstance(place, Topic):
        return TopicRecords(place, tuple(key), dict(options or {}))
    if isinstance(place, Table):
        return DeltaAppends(place)
    folder = parse_uri(checkpoint)
    if not isinstance(folder, Folder):
        raise BadInputError(f"checkpoint must be a path or the URI of a folder, got {checkpoint!r}")
    if place.local is not None and folder.local is not None:
        return BatchFolders(place.local, folder.local, time)
    return HadoopFolders(spark, place, folder, time)


def check_replaceable(spark: SparkSession, uri: str) -> None:
    """Refuse a folder that `write_rows` would empty of the files of others.

    Raises:
        BadInputError: The folder holds files that are not of a table, or the batches of a stream.
    """
    place = parse_uri(uri)
    if not isinstance(place, Folder):
        return
    if place.local is not None:
        check_table(place.local)
    else:
        check_folder(spark, place)


def write_rows(
    frame: DataFrame,
    uri: str,
    *,
    key: Sequence[str],
    options: Mapping[str, str] | None = None,
    keep_empty: bool = True,
) -> int:
    """Write the result of a batch; it replaces existing rows, except in a topic, which grows.

    Args:
        frame: The rows.
        uri: The URI of a folder, a topic or a Delta table.
        key: The columns that identify a row; they become the keys of a topic's records.
        options: Additional options for the writer of a topic, such as ``kafka.security.protocol``.
        keep_empty: Whether a result without rows is a folder whose file has only the schema;
            False for no folder.

    Returns:
        The number of rows.

    Raises:
        BadInputError: The URI is invalid, or see `check_replaceable`.
        AiowheelError: For a local folder, the number of rows read back differs from the number
            written; the folder stays unchanged.
    """
    place = parse_uri(uri)
    if isinstance(place, Topic):
        return TopicRecords(place, tuple(key), dict(options or {})).write(frame)
    if isinstance(place, Table):
        return replace_table(frame, place)
    check_replaceable(frame.sparkSession, uri)
    if place.local is not None:
        return replace_folder(frame, place.local, keep_empty=keep_empty)
    return replace_files(frame, place, keep_empty=keep_empty)
