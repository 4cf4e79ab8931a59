"""Running a stream from its start to its end, in phases. Rank 5."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from aiowheel._events import emit
from aiowheel.jobs.spark.failures import is_passing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from aiowheel.jobs.spark.checkpoint import Checkpoint

# Defaults of a stream.
INTERVAL_MS: Final = 500  #: between the starts of two micro-batches
SHARDS: Final = 16
FILES_PER_BATCH: Final = 100  #: of each folder
RECORDS_PER_BATCH: Final = 1_000_000  #: of each topic

LONGEST_LATENESS: Final = 31_536_000  #: of a row, in seconds: a year
MOST_SHARDS: Final = 100_000
# Far below the time of a hundred micro-batches; Spark keeps the reports of no more than those.
_LOOK_SECONDS: Final = 1
_ATTEMPTS = 4  # as Spark's own default for a task, spark.task.maxFailures


class Until(StrEnum):
    """The condition on which a stream ends, and the reason why it ended."""

    STOPPED = "stopped"  # by Ctrl-C or SIGTERM, or flushed by another process
    ONCE = "once"  # when all files are processed; open keys stay open for the next run
    DRAINED = "drained"  # when all files are processed and time has advanced beyond all open keys


class Phase(Enum):
    """The input of a query, and its end."""

    FOLLOW = "follow"  # present and arriving input; the query does not end
    CATCH_UP = "catch up"  # the input present at the start, not what arrives meanwhile
    FINISH = "finish"  # no input, only the flush rows

    def trigger(self, interval_ms: int) -> dict[str, Any]:
        """Return the arguments of `DataStreamWriter.trigger`.

        Args:
            interval_ms: The time between the starts of two micro-batches, if the query waits for
                input.
        """
        if self is Phase.FOLLOW:
            return {"processingTime": f"{interval_ms} milliseconds"}
        return {"availableNow": True}

    @property
    def reads_input(self) -> bool:
        """Whether the query reads input, and not only the flush rows."""
        return self is not Phase.FINISH

    def of_input(self, rows: DataFrame) -> DataFrame:
        """Return the rows of an input source that this phase reads."""
        from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

        # The source stays in the query, because a checkpoint requires the same sources.
        return rows if self.reads_input else rows.where(F.lit(False))


class Stream(Protocol):
    """The interface of a stream of either job."""

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint of the stream."""
        ...

    @property
    def settings(self) -> Mapping[str, object]:
        """The settings that may not change during the life of the checkpoint."""
        ...

    def start(self, spark: SparkSession, phase: Phase) -> StreamingQuery:
        """Start the query of a phase, or continue from the checkpoint."""
        ...


class StreamRun:
    """One run of a stream; `stop` ends it from another thread.

    Args:
        stream: The stream to run.
        spark: The session.
        look: Called with the query each second and after its end, while Spark still has the
            reports of the micro-batches.
    """

    def __init__(
        self,
        stream: Stream,
        spark: SparkSession,
        look: Callable[[StreamingQuery], object] = lambda _query: None,
    ) -> None:
        self._stream = stream
        self._spark = spark
        self._look = look
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._query: StreamingQuery | None = None

    def run(self, until: Until) -> Until:
        """Run until the condition *until* holds, or an earlier end.

        A stream whose flush was requested ends as `DRAINED`. So does a stream whose process died
        during its end: it reads no later input.

        Returns:
            The reason for the end; `Until.STOPPED` after `stop`.

        Raises:
            BadInputError: The checkpoint belongs to another stream, a file is bad, or a setting of
                the session would make the result wrong.
            PySparkException: Spark failed.
        """
        checkpoint = self._stream.checkpoint
        checkpoint.open(self._stream.settings)
        if not checkpoint.end_begun():
            phases = [Phase.CATCH_UP]
            if until is Until.STOPPED and not checkpoint.flush_requested():
                phases = [Phase.FOLLOW, Phase.CATCH_UP]
            for phase in phases:
                if not self._work(phase):
                    return Until.STOPPED
            if until is Until.ONCE and not checkpoint.flush_requested():
                return Until.ONCE
            checkpoint.begin_end()
        checkpoint.send_flush()
        if not self._work(Phase.FINISH):
            return Until.STOPPED
        checkpoint.end()
        return Until.DRAINED

    def stop(self) -> None:
        """End the run after the current call to Spark; a later run continues."""
        self._stopped.set()
        with self._lock:
            if self._query is not None:
                self._query.stop()

    def _work(self, phase: Phase) -> bool:
        """Run the query of one phase; return whether it reached its end.

        A query that ends with a passing error is restarted. A query with state begins with Python
        workers on the driver; if one starts too slowly, no micro-batch has written anything. This
        also holds if a Delta table gets a column. The error of the Kafka source comes after a whole
        micro-batch.
        """
        failures, finished = 0, -1
        while True:
            try:
                return self._attempt(phase)
            except Exception as error:
                before, finished = finished, self._stream.checkpoint.last_finished_batch()
                failures = failures + 1 if finished == before else 1
                if failures == _ATTEMPTS or not is_passing(error):
                    raise
                if self._query is not None:
                    self._look(self._query)  # the next query has no reports of these micro-batches
                emit("aiowheel.stream_restarted", batch=finished + 1, failures=failures)

    def _attempt(self, phase: Phase) -> bool:
        """Run the query of one phase once; return whether it reached its end."""
        with self._lock:
            if self._stopped.is_set():
                return False
            query = self._query = self._stream.start(self._spark, phase)
        flush_requested = self._stream.checkpoint.flush_requested
        while not query.awaitTermination(_LOOK_SECONDS):  # raises the error that ended the query
            self._look(query)
            if phase is Phase.FOLLOW and flush_requested():
                query.stop()  # the next phase repeats an interrupted micro-batch
        self._look(query)
        return not self._stopped.is_set()
