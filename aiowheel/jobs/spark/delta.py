"""A stream's rows in a table of Delta Lake, each micro-batch exactly once. Rank 5.

Delta notes, with the rows, the stream and the number of the micro-batch, and passes over one that
it has. The stream is known by the id that Spark keeps in its checkpoint: a stream that begins
anew, in another checkpoint, adds its rows even if its numbers were there before.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from aiowheel.jobs.spark.kept import kept_on_disk
from aiowheel.jobs.spark.uris import Table

_QUERY_ID: Final = "sql.streaming.queryId"  # a local property in a micro-batch


class DeltaAppends:
    """Appends the micro-batches of one stream to a table; give it to foreachBatch.

    Args:
        table: Made when missing.
    """

    def __init__(self, table: Table) -> None:
        self.table = table

    def write(self, frame: DataFrame, batch_id: int) -> int:
        """Append the rows of *frame*, unless those of *batch_id* are there.

        Returns:
            How many rows that were.

        Cost: one action on *frame*, which is kept on the workers' disks meanwhile.
        """
        stream = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        if stream is None:
            raise AssertionError("write is for foreachBatch")
        with kept_on_disk(frame) as (kept, count):
            writer = kept.write.format("delta").mode("append")
            # Without optimizeWrite each task writes a file, however few rows it has.
            writer = writer.option("optimizeWrite", True)
            writer = writer.option("txnAppId", stream).option("txnVersion", batch_id)
            writer.save(self.table.folder.path)
        return count


def replace_table(frame: DataFrame, table: Table) -> int:
    """Write *frame* in place of what *table* holds, in one version of it.

    Returns:
        How many rows the table has then.
    """
    frame.write.format("delta").mode("overwrite").save(table.folder.path)
    return frame.sparkSession.read.format("delta").load(table.folder.path).count()
