"""The counts of a micro-batch, from Spark's progress report. Rank 5; imports no Spark.

The streams observe the numbers of rows read, rejected and taken under the names below. Rows that
are neither taken nor rejected came too late. Spark's own operators count the late rows that they
drop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

#: Observed on reading, with the columns ``rows`` (all rows) and ``rejected``.
TABLES: Final = ("touches", "operations", "events")
#: Observed after late rows have been dropped; its ``rows`` are touches.
TAKEN: Final = "taken"


class BatchCounts(NamedTuple):
    """The row counts of one micro-batch.

    Attributes:
        rows: Rows read from the sources; for a query of other code, Spark's own number.
        rejected: Rejected rows.
        late: Rows dropped because they came too late.
    """

    rows: int
    rejected: int
    late: int


def batch_counts(batch: StreamingQueryProgress) -> BatchCounts:
    """Count the rows that a micro-batch of any query read, rejected and dropped as late."""
    if not any(name in batch.observedMetrics for name in (*TABLES, TAKEN)):
        dropped = sum(int(state.numRowsDroppedByWatermark) for state in batch.stateOperators)
        return BatchCounts(int(batch.numInputRows), 0, dropped)
    read = [observed(batch, name, "rows", "rejected") for name in TABLES]
    rows, rejected = (sum(counts) for counts in zip(*read, strict=True))
    taken = batch.observedMetrics.get(TAKEN)
    used = 0 if taken is None else sum(int(count or 0) for count in taken)
    return BatchCounts(rows, rejected, rows - rejected - used)


def observed(batch: StreamingQueryProgress, name: str, *counts: str) -> list[int]:
    """Return the numbers observed under *name*; 0 for a batch without rows."""
    row = batch.observedMetrics.get(name)
    return [int(row[count] or 0) if row else 0 for count in counts]
