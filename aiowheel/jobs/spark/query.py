"""Starting the query of a stream in one of its phases. Rank 5."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from aiowheel.jobs.spark.checkpoint import Checkpoint
from aiowheel.jobs.spark.source_files import refuse_missing_files
from aiowheel.jobs.spark.stream_run import Phase
from aiowheel.jobs.spark.stream_settings import ENDING, check_session
from aiowheel.jobs.spark.uris import spark_file


def start_query(
    rows: DataFrame,
    job: str,
    checkpoint: Checkpoint,
    phase: Phase,
    interval_ms: int,
    write: Callable[[DataFrame, int], object],
    check_files: Callable[[set[str]], object] = lambda _files: None,
) -> StreamingQuery:
    """Start the query, or continue from the open checkpoint.

    Args:
        rows: The output of the query.
        job: The name of the job. The name of the query has the folder of the checkpoint, too,
            because a session runs no two queries of the same name.
        checkpoint: The checkpoint of the stream.
        phase: The phase, which determines when the query ends.
        interval_ms: The time between the starts of two micro-batches while input may arrive.
        write: Called with the rows of each micro-batch and its number, after checking that the
            micro-batch's files exist: a missing file ends the query with an error.
        check_files: Called before *write* with these files, as `files_of_batch` returns them.

    Raises:
        BadInputError: A setting of the session would make the result wrong, or its release has a
            defect that ends streams.
    """
    check_session(rows.sparkSession, ENDING)

    def checked(frame: DataFrame, batch_id: int) -> None:
        if phase.reads_input:
            check_files(refuse_missing_files(frame.sparkSession, checkpoint.folder, batch_id))
        write(frame, batch_id)

    return (
        rows.writeStream.queryName(f"aiowheel-{job} {checkpoint.folder}")
        .outputMode("append")
        .option("checkpointLocation", spark_file(checkpoint.folder))
        .trigger(**phase.trigger(interval_ms))
        .foreachBatch(checked)
        .start()
    )
