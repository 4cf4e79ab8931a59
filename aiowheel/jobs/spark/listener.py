"""A session's streams as log events and statistics, while they run. Rank 5.

Spark calls a listener from its own thread, after each micro-batch of every query of a session.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from aiowheel.errors import MissingExtraError

try:
    from pyspark.sql.streaming.listener import StreamingQueryListener
except ImportError as _error:
    raise MissingExtraError("spark") from _error

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
    """The statistics of one query since the listener was added.

    Attributes:
        batches: Number of finished micro-batches.
        rows: Number of rows read.
        rejected_rows: Number of rejected rows.
        late_rows: Number of rows dropped because they came too late.
        failures: Number of runs of the query that ended with an error.
        batch_seconds: Duration of the last micro-batch.
        watermark_seconds: The watermark, in seconds since 1970; None before there is one.
    """

    batches: int = 0
    rows: int = 0
    rejected_rows: int = 0
    late_rows: int = 0
    failures: int = 0
    batch_seconds: float = 0.0
    watermark_seconds: float | None = None


class StreamListener(StreamingQueryListener):
    """A listener for a session's streams: ``spark.streams.addListener(listener)``.

    It logs each micro-batch as `aiowheel.stream_batch`, and the warnings
    `aiowheel.stream_rows_lost` and `aiowheel.stream_failed`. `StreamCollector` exports the
    statistics to Prometheus. Only streams of this package count rejected rows; for any other query
    the count is 0, and the late rows are those that Spark's operators dropped.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._statistics: dict[str, StreamStatistics] = {}
        self._names: dict[str, str] = {}  # names of the running queries, by run id

    def statistics(self) -> dict[str, StreamStatistics]:
        """Return the statistics of each query, by its name, or by its id if it has no name."""
        with self._lock:
            return dict(self._statistics)

    # Spark defines the names of these methods.

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Record the start of a query; Spark calls this."""
        self._names[str(event.runId)] = event.name or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Record the end of a micro-batch; Spark calls this."""
        batch = event.progress
        if "addBatch" not in batch.durationMs:
            return  # a trigger without data
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
        """Do nothing; Spark calls this for a trigger without data."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Record the end of a query; Spark calls this."""
        query = self._names.pop(str(event.runId), str(event.id))
        if event.exception:
            with self._lock:
                before = self._statistics.get(query, StreamStatistics())
                self._statistics[query] = replace(before, failures=before.failures + 1)
            reason = event.exception.strip().split("\n", 1)[0]
            emit("aiowheel.stream_failed", query=query, reason=reason)


def _watermark(batch: StreamingQueryProgress) -> datetime | None:
    """Return the watermark of a batch; None before there is one, which Spark writes as 1970."""
    text = batch.eventTime.get("watermark")
    if text is None:
        return None
    moment = datetime.fromisoformat(text)
    return moment if moment.timestamp() > 0 else None
