"""How a stream runs from its start to its end, in phases. Rank 5."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from aiowheel.jobs.spark.checkpoint import Checkpoint

_POLL: Final = "500 milliseconds"
_LOOK_SECONDS: Final = (
    1  # far below the time of a hundred micro-batches, of which Spark keeps reports
)


class Until(StrEnum):
    """When a stream ends of itself, and why it has ended."""

    STOPPED = "stopped"  # by Ctrl-C or SIGTERM, or flushed by another process
    ONCE = "once"  # when all files are worked off; what is open waits for the next run
    DRAINED = "drained"  # when all files are worked off, and time has run out for what is open


class Phase(Enum):
    """What a query reads, and when it ends."""

    FOLLOW = "follow"  # what is there and what arrives; it does not end
    CATCH_UP = "catch up"  # what is there at its start, however much arrives meanwhile
    FINISH = "finish"  # no input any more, only the flush rows

    @property
    def trigger(self) -> dict[str, Any]:
        """The arguments of `DataStreamWriter.trigger`."""
        if self is Phase.FOLLOW:
            return {"processingTime": _POLL}
        return {"availableNow": True}

    def of_input(self, rows: DataFrame) -> DataFrame:
        """What this phase takes of a source of input."""
        from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

        # The source stays in the query, which could not go on with its checkpoint without it.
        return rows.where(F.lit(False)) if self is Phase.FINISH else rows


class Stream(Protocol):
    """A stream of either job."""

    @property
    def checkpoint(self) -> Checkpoint:
        """What the stream remembers."""
        ...

    @property
    def settings(self) -> Mapping[str, object]:
        """What the checkpoint must have been made with."""
        ...

    def start(self, spark: SparkSession, phase: Phase) -> StreamingQuery:
        """Start the query of a phase, or go on where the checkpoint stands."""
        ...


class StreamRun:
    """One run of a stream; `stop` ends it from another thread.

    Args:
        stream: What to run.
        spark: The session.
        look: Called with the query each second and after each phase, as long as Spark keeps the
            reports on micro-batches.
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
        """Run to the end that *until* names, or to an earlier one.

        A stream whose flush has been requested ends drained. So does one that died while it ended:
        input that came since is not read.

        Returns:
            Why it ended; `Until.STOPPED` after `stop`.

        Raises:
            BadInputError: The checkpoint does not belong to the stream, or a file is bad.
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
        """End the run after the call to Spark that is under way; a later run goes on."""
        self._stopped.set()
        with self._lock:
            if self._query is not None:
                self._query.stop()

    def _work(self, phase: Phase) -> bool:
        """Run the query of one phase to its end; returns whether that was reached."""
        with self._lock:
            if self._stopped.is_set():
                return False
            query = self._query = self._stream.start(self._spark, phase)
        flush_requested = self._stream.checkpoint.flush_requested
        while not query.awaitTermination(_LOOK_SECONDS):  # raises what ended it
            self._look(query)
            if phase is Phase.FOLLOW and flush_requested():
                query.stop()  # a micro-batch that this cuts off is repeated by the next phase
        self._look(query)
        return not self._stopped.is_set()
