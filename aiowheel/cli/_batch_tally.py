"""The micro-batches of a stream command: a line for each, and totals. Rank 5."""

import json
import statistics
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiowheel.jobs.spark.progress import BatchCounts

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

#: Called with the number of a micro-batch, its rows and its duration in seconds.
ReportBatch = Callable[[int, BatchCounts, float], object]


def batch_line(*, as_json: bool) -> ReportBatch:
    """Return a function that prints a line on stderr for each micro-batch with rows."""

    def print_batch(number: int, counts: BatchCounts, seconds: float) -> None:
        if not counts.rows:
            return
        if as_json:
            line = json.dumps({"batch": number, **counts._asdict(), "seconds": seconds})
        else:
            line = f"aiowheel: batch {number}: {counts.rows:,} rows in {seconds:.1f} s"
            line += f", {counts.rejected:,} rejected" if counts.rejected else ""
            line += f", {counts.late:,} late and lost" if counts.late else ""
        print(line, file=sys.stderr, flush=True)

    return print_batch


class BatchTally(ABC):
    """Totals over the micro-batches of one run, from Spark's progress reports.

    Args:
        report: Called for each batch.
        last_batch: Number of the last batch that an earlier run finished; -1: none.

    Attributes:
        seconds: Durations of the batches with rows.
        empty_seconds: Durations of the batches without rows.
    """

    def __init__(self, report: ReportBatch, last_batch: int = -1) -> None:
        self.seconds: list[float] = []
        self.empty_seconds: list[float] = []
        self._report = report
        self._last_batch = last_batch

    def take(self, query: "StreamingQuery") -> None:
        """Add the batches that ended since the last call.

        Raises:
            AiowheelError: The numbers of a batch do not agree.
        """
        for batch in query.recentProgress:
            if batch.batchId <= self._last_batch or "addBatch" not in batch.durationMs:
                continue  # counted already, or a report without a batch
            self.close(batch.batchId - 1)
            self._last_batch = batch.batchId
            seconds = batch.durationMs["triggerExecution"] / 1_000
            counts = self._add(batch)
            (self.seconds if counts.rows else self.empty_seconds).append(seconds)
            self._report(batch.batchId, counts, seconds)

    def close(self, last_batch: int) -> None:
        """Print a line on stderr for each batch up to *last_batch* without a report of Spark.

        Args:
            last_batch: Number of the last finished batch.
        """
        for batch in range(self._last_batch + 1, last_batch + 1):
            print(
                f"aiowheel: batch {batch}: Spark sent no report, so its rows are not counted",
                file=sys.stderr,
                flush=True,
            )
        self._last_batch = max(self._last_batch, last_batch)

    @abstractmethod
    def _add(self, batch: "StreamingQueryProgress") -> BatchCounts:
        """Add one batch, and return its counts."""

    @property
    def batches(self) -> int:
        """Number of batches."""
        return len(self.seconds) + len(self.empty_seconds)

    @property
    def batch_seconds(self) -> float | None:
        """Median duration of the batches with rows; None if there were none."""
        return _median(self.seconds)

    @property
    def fixed_seconds(self) -> float | None:
        """Median duration of the batches without rows: the fixed cost of a batch."""
        return _median(self.empty_seconds)

    def rate(self, rows: int) -> int:
        """Return *rows* divided by the duration of the batches with rows, per second."""
        busy = sum(self.seconds)
        return round(rows / busy) if busy else 0


def _median(seconds: list[float]) -> float | None:
    return round(statistics.median(seconds), 3) if seconds else None
