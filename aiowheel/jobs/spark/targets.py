"""Where results go, by URI: folders of Parquet, a Delta table, a Kafka topic. Rank 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from aiowheel.errors import BadInputError
from aiowheel.jobs.spark.delta import DeltaAppends, replace_table
from aiowheel.jobs.spark.hadoop import HadoopFolders, exists, replace_files
from aiowheel.jobs.spark.kafka import TopicRecords
from aiowheel.jobs.spark.sinks import BatchFolders, replace_folder
from aiowheel.jobs.spark.uris import Folder, Table, Topic, parse_uri


class Sink(Protocol):
    """Takes the micro-batches of one stream."""

    def write(self, frame: DataFrame, batch_id: int, /) -> int:
        """Write the rows of a micro-batch, which may be a repeated one; return their number."""
        ...


def open_sink(
    spark: SparkSession,
    uri: str,
    *,
    checkpoint: str,
    key: Sequence[str],
    options: Mapping[str, str] | None = None,
) -> Sink:
    """Open the sink of a stream; give its `write` to foreachBatch.

    Args:
        spark: The session.
        uri: As `parse_uri` reads it. A folder and a Delta table have each micro-batch exactly once,
            a topic at least once.
        checkpoint: Of the stream: a path, or a URI of a folder.
        key: The columns that name a row; the keys of a topic's records.
        options: More options for the writer of a topic, such as ``kafka.security.protocol``.

    Raises:
        BadInputError: A URI is none, or the folder is that of another stream.
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
        return BatchFolders(place.local, folder.local)
    if folder.local is not None:
        has_begun = (folder.local / "commits").exists()
    else:
        has_begun = exists(spark, f"{folder.path}/commits")
    return HadoopFolders(spark, place, is_new=not has_begun)


def write_rows(
    frame: DataFrame, uri: str, *, key: Sequence[str], options: Mapping[str, str] | None = None
) -> int:
    """Write the result of a batch: in place of what is there, but for a topic, which grows.

    Args:
        frame: The rows.
        uri: As `parse_uri` reads it.
        key: The columns that name a row; the keys of a topic's records.
        options: More options for the writer of a topic, such as ``kafka.security.protocol``.

    Returns:
        How many rows there were.

    Raises:
        BadInputError: The URI is none.
        AiowheelError: Of a folder of this machine, fewer or more rows can be read back than were
            written; it is left as it was.
    """
    place = parse_uri(uri)
    if isinstance(place, Topic):
        return TopicRecords(place, tuple(key), dict(options or {})).write(frame)
    if isinstance(place, Table):
        return replace_table(frame, place)
    if place.local is not None:
        return replace_folder(frame, place.local)
    return replace_files(frame, place)
