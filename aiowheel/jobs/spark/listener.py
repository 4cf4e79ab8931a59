"""Streams of a session as log events and as numbers, while they run. Rank 5.

Spark calls a listener from a thread of its own, after each micro-batch of every query of a session.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from aiowheel._events import emit, emit_info
from aiowheel.jobs.spark.progress import batch_counts

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """The numbers of one query since the listener was added.

    Attributes:
        batches: Micro-batches that ended.
        rows: Rows read.
        rejected_rows: Rows that cannot be used.
        late_rows: Rows that came later than allowed, and are lost.
        failures: Runs of the query that ended by an error.
        batch_seconds: Duration of the last micro-batch.
        watermark_seconds: The watermark, in seconds since 1970; None while there is none.
    """

    batches: int = 0
    rows: int = 0
    rejected_rows: int = 0
    late_rows: int = 0
    failures: int = 0
    batch_seconds: float = 0.0
    watermark_seconds: float | None = None


class StreamListener(StreamingQueryListener):
    """Reports every micro-batch of a session's streams: ``spark.streams.addListener(listener)``.

    Log events are `aiowheel.stream_batch`, and the warnings `aiowheel.stream_rows_lost` and
    `aiowheel.stream_failed`. `StreamCollector` gives the numbers to Prometheus. Streams of this
    package count rejected rows; of any other query these are 0, and its late rows are those that
    Spark's operators dropped.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._statistics: dict[str, StreamStatistics] = {}
        self._names: dict[str, str] = {}  # of the queries that run, by their run's id

    def statistics(self) -> dict[str, StreamStatistics]:
        """Return the numbers of each query, by its name, or its id if it has none."""
        with self._lock:
            return dict(self._statistics)

    # The names of the methods are Spark's.

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Called by Spark: a query starts."""
        self._names[str(event.runId)] = event.name or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Called by Spark: a micro-batch has ended."""
        batch = event.progress
        if "addBatch" not in batch.durationMs:
            return  # there was nothing to do
        query = batch.name or str(batch.id)
        counts = batch_counts(batch)
        seconds = batch.durationMs["triggerExecution"] / 1_000
        watermark = _watermark(batch)
        with self._lock:
            before = self._statistics.get(query, StreamStatistics())
            self._statistics[query] = replace(
                before,
                batches=before.batches + 1,
                rows=before.rows + counts.rows,
                rejected_rows=before.rejected_rows + counts.rejected,
                late_rows=before.late_rows + counts.late,
                batch_seconds=seconds,
                watermark_seconds=None if watermark is None else watermark.timestamp(),
            )
        emit_info(
            "aiowheel.stream_batch",
            query=query,
            batch=batch.batchId,
            **counts._asdict(),
            seconds=seconds,
            watermark=None if watermark is None else watermark.isoformat(),
        )
        if counts.rejected or counts.late:
            emit(
                "aiowheel.stream_rows_lost",
                query=query,
                batch=batch.batchId,
                rejected=counts.rejected,
                late=counts.late,
            )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Called by Spark: there is nothing to do."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Called by Spark: a query has ended."""
        query = self._names.pop(str(event.runId), str(event.id))
        if event.exception:
            with self._lock:
                before = self._statistics.get(query, StreamStatistics())
                self._statistics[query] = replace(before, failures=before.failures + 1)
            reason = event.exception.strip().split("\n", 1)[0]
            emit("aiowheel.stream_failed", query=query, reason=reason)


def _watermark(batch: StreamingQueryProgress) -> datetime | None:
    """The watermark of a batch; None while there is none, which Spark writes as 1970."""
    text = batch.eventTime.get("watermark")
    if text is None:
        return None
    moment = datetime.fromisoformat(text)
    return moment if moment.timestamp() > 0 else None
