"""What a micro-batch did, from Spark's report on it. Rank 5; imports no Spark.

The streams observe what they read, reject and take under the names below. Rows of a query that are
neither taken nor rejected came too late. Operators of Spark that drop late rows count them
themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

#: Observed where rows are read, with the columns ``rows`` (all of them) and ``rejected``.
TABLES: Final = ("touches", "operations", "events")
#: Observed where late rows are gone; touches are its ``rows``.
TAKEN: Final = "taken"


class BatchCounts(NamedTuple):
    """The rows of one micro-batch.

    Attributes:
        rows: Read from its sources; of a query of other code Spark's own number.
        rejected: Rows that cannot be used.
        late: Rows that came later than allowed, and are lost.
    """

    rows: int
    rejected: int
    late: int


def batch_counts(batch: StreamingQueryProgress) -> BatchCounts:
    """Add up what a micro-batch of any query read, rejected and lost."""
    if not any(name in batch.observedMetrics for name in (*TABLES, TAKEN)):
        dropped = sum(int(state.numRowsDroppedByWatermark) for state in batch.stateOperators)
        return BatchCounts(int(batch.numInputRows), 0, dropped)
    read = [observed(batch, name, "rows", "rejected") for name in TABLES]
    rows, rejected = (sum(counts) for counts in zip(*read, strict=True))
    taken = batch.observedMetrics.get(TAKEN)
    used = 0 if taken is None else sum(int(count or 0) for count in taken)
    return BatchCounts(rows, rejected, rows - rejected - used)


def observed(batch: StreamingQueryProgress, name: str, *counts: str) -> list[int]:
    """The numbers that were observed under *name*; a batch without rows has 0."""
    row = batch.observedMetrics.get(name)
    return [int(row[count] or 0) if row else 0 for count in counts]
