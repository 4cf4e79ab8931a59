"""What the commands over streams share: limits, a run until a signal, a tally. Rank 5."""

import math
import statistics
import threading
from abc import abstractmethod
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

from aiowheel.cli._destination import check_folder
from aiowheel.errors import AiowheelError, BadInputError
from aiowheel.jobs.spark.stream_run import StreamRun, Until

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

_LONGEST_LATENESS = 31_536_000  # a year
_LOOK_SECONDS = 0.5


def until_of(*, once: bool, drain: bool) -> Until:
    """When the options let a stream end.

    Raises:
        BadInputError: Both are given.
    """
    if once and drain:
        raise BadInputError("--once and --drain exclude each other")
    return Until.DRAINED if drain else Until.ONCE if once else Until.STOPPED


def lateness_ms(seconds: float) -> int:
    """The milliseconds of ``--max-lateness``.

    Raises:
        BadInputError: It is more than a year.
    """
    if not seconds <= _LONGEST_LATENESS:
        raise BadInputError(f"--max-lateness: must be at most {_LONGEST_LATENESS} s, got {seconds}")
    return math.ceil(seconds * 1_000)


def check_places(watched: Path, out: Path, checkpoint: Path) -> None:
    """Refuse folders for results in which files are watched for.

    Raises:
        BadInputError: One lies there, or cannot be a folder of ours.
    """
    for option, place in (("--out", out), ("--checkpoint", checkpoint)):
        if place.resolve().is_relative_to(watched.resolve()):
            raise BadInputError(f"{place}: lies in the watched folder, {option} wants another one")
        check_folder(place, option)


def make_folder(out: Path) -> None:
    """Make the folder of a stream's results.

    Raises:
        BadInputError: The system refuses.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"{out}: {error.strerror}") from error


def run_until_stopped(run: StreamRun, until: Until, stop: threading.Event) -> Until:
    """Run a stream to its end, or until *stop* is set.

    Returns:
        Why it ended.

    Raises:
        BadInputError: The checkpoint does not belong to the stream, or a file is bad.
        PySparkException: Spark failed.
    """
    # Waiting for Spark cannot be interrupted without harm, so a thread does it.
    with ThreadPoolExecutor(1) as waiting:
        end = waiting.submit(run.run, until)
        while not (stop.is_set() or end.done()):
            wait([end], _LOOK_SECONDS)
        if not end.done():
            run.stop()
    try:
        return end.result()
    except AiowheelError:
        raise
    except Exception:
        if stop.is_set():  # a micro-batch that was cut off: the next run repeats it
            return Until.STOPPED
        raise


class BatchTally:
    """What the micro-batches of one run did, from Spark's reports on them.

    Attributes:
        seconds: How long each took that had rows.
        empty_seconds: How long each took that had none.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.empty_seconds: list[float] = []
        self._last_batch = -1

    def take(self, query: "StreamingQuery") -> None:
        """Add the batches that ended since the last call.

        Raises:
            AiowheelError: The numbers of a batch do not agree.
        """
        for batch in query.recentProgress:
            if batch.batchId <= self._last_batch or "addBatch" not in batch.durationMs:
                continue  # known, or nothing to do
            self._last_batch = batch.batchId
            seconds = batch.durationMs["triggerExecution"] / 1_000
            rows = self._add(batch, seconds)
            (self.seconds if rows else self.empty_seconds).append(seconds)

    @abstractmethod
    def _add(self, batch: "StreamingQueryProgress", seconds: float) -> int:
        """Add one batch; returns how many rows it read."""

    @property
    def batches(self) -> int:
        """How many there were."""
        return len(self.seconds) + len(self.empty_seconds)

    @property
    def batch_seconds(self) -> float | None:
        """Median of those with rows."""
        return _median(self.seconds)

    @property
    def fixed_seconds(self) -> float | None:
        """Median of those without, which is what each costs at least."""
        return _median(self.empty_seconds)

    def rate(self, rows: int) -> int:
        """So many *rows* a second of the batches that had rows."""
        busy = sum(self.seconds)
        return round(rows / busy) if busy else 0


def _median(seconds: list[float]) -> float | None:
    return round(statistics.median(seconds), 3) if seconds else None
