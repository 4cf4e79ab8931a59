"""The query of a stream in one of its phases. Rank 5."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from aiowheel.jobs.spark.checkpoint import Checkpoint
from aiowheel.jobs.spark.source_files import refuse_missing_files
from aiowheel.jobs.spark.stream_run import Phase


def start_query(
    rows: DataFrame,
    name: str,
    checkpoint: Checkpoint,
    phase: Phase,
    write: Callable[[DataFrame, int], object],
) -> StreamingQuery:
    """Start the query, or go on where the open checkpoint stands.

    Args:
        rows: What it writes.
        name: Of the query.
        checkpoint: Of the stream.
        phase: When it ends.
        write: Called with the rows of each micro-batch and its number, for the files of which it
            has been looked: a micro-batch whose files are gone ends the query.
    """

    def checked(frame: DataFrame, batch_id: int) -> None:
        if phase is not Phase.FINISH:
            refuse_missing_files(frame.sparkSession, checkpoint.folder, batch_id)
        write(frame, batch_id)

    return (
        rows.writeStream.queryName(name)
        .outputMode("append")
        .option("checkpointLocation", str(checkpoint.folder))
        .trigger(**phase.trigger)
        .foreachBatch(checked)
        .start()
    )
