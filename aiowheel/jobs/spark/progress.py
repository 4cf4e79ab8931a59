"""The counts of a micro-batch, from Spark's progress report. Rank 5; imports no Spark.

The streams observe the numbers of rows rejected, of rows in packs and of rows taken, under the
names below; see `observing`. Rows of a pack that no shard has taken came too late. Spark's own
operators count the late rows that they drop.

The numbers are exact, except that a task that is repeated after the loss of an executor counts the
rows that it rejects again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

#: Observed on reading, with the column ``rejected``.
TABLES: Final = ("touches", "operations", "events")
#: Observed on the output of the shards, with the column ``shards``.
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
    if not _is_of_shards(batch):
        dropped = sum(int(state.numRowsDroppedByWatermark) for state in batch.stateOperators)
        return BatchCounts(int(batch.numInputRows), 0, dropped)
    rejected = sum(observed(batch, name, "rejected")[0] for name in TABLES)
    packed = sum(packed_rows(batch, name) for name in TABLES)
    return BatchCounts(packed + rejected, rejected, packed - taken_rows(batch).total())


def observed(batch: StreamingQueryProgress, name: str, *counts: str) -> list[int]:
    """Return the numbers observed under *name*; 0 for a batch without rows."""
    return [int(_value(batch, name, count) or 0) for count in counts]


def packs_of_table(table: str) -> str:
    """Return the name under which the packs of a table are observed, in the column ``packs``."""
    return f"{table}_packed"


def packed_rows(batch: StreamingQueryProgress, table: str) -> int:
    """Return the number of rows in the packs of a table."""
    return sum(int(row["count"] or 0) for row in _rows(batch, packs_of_table(table), "packs"))


def taken_rows(batch: StreamingQueryProgress) -> Counter[str]:
    """Return the numbers of rows that the shards have taken, by the name of the count."""
    totals: Counter[str] = Counter()
    for row in _rows(batch, TAKEN, "shards"):
        totals.update(row)
    del totals["shard"]
    return totals


def _is_of_shards(batch: StreamingQueryProgress) -> bool:
    """Return whether the query is a stream of this package: each of them observes its shards.

    Other code may use the same names for its own observations, with other columns.
    """
    taken: Any = batch.observedMetrics.get(TAKEN, ())
    return taken is None or ("shards" in taken and isinstance(taken["shards"], list | None))


def _rows(batch: StreamingQueryProgress, name: str, column: str) -> list[dict[str, Any]]:
    """Return an observed set; its rows are dictionaries in a report that was read as JSON."""
    rows = _value(batch, name, column) or ()
    return [each if isinstance(each, dict) else each.asDict() for each in rows]


def _value(batch: StreamingQueryProgress, name: str, column: str) -> Any:
    """Return an observed value; None for a batch without rows, or if there is no such column."""
    row: Any = batch.observedMetrics.get(name)
    return None if row is None or column not in row else row[column]
