"""A stream's rows in a Delta Lake table, each micro-batch exactly once. Rank 5.

Delta stores the stream's id and the number of the micro-batch together with the rows, and skips a
micro-batch that it has already. The id is the one in Spark's checkpoint: a stream with a new
checkpoint adds its rows even if the table has the same batch numbers.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from aiowheel.jobs.spark.kept import kept_on_disk
from aiowheel.jobs.spark.uris import Table

_QUERY_ID: Final = "sql.streaming.queryId"  # a local property within a micro-batch


class DeltaAppends:
    """A sink that appends the micro-batches of one stream to a table; pass `write` to foreachBatch.

    Args:
        table: The table; created if missing.
    """

    def __init__(self, table: Table) -> None:
        self.table = table

    def write(self, frame: DataFrame, batch_id: int) -> int:
        """Append the rows of *frame*, unless the table has those of *batch_id* already.

        Returns:
            The number of these rows.

        Cost: one action on *frame*, which is kept on the workers' disks during the call.
        """
        stream = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        if stream is None:
            raise AssertionError("write is for foreachBatch")
        with kept_on_disk(frame) as (kept, count):
            writer = kept.write.format("delta").mode("append")
            # Without optimizeWrite each task writes a file, even for few rows.
            writer = writer.option("optimizeWrite", True)
            writer = writer.option("txnAppId", stream).option("txnVersion", batch_id)
            writer.save(self.table.folder.for_spark)
        return count


def replace_table(frame: DataFrame, table: Table) -> int:
    """Replace the rows of *table* by *frame*, in one version of the table.

    Returns:
        The number of rows that the table then has.
    """
    frame.write.format("delta").mode("overwrite").save(table.folder.for_spark)
    return frame.sparkSession.read.format("delta").load(table.folder.for_spark).count()
