"""What the commands over streams share: limits, a run until a signal, a tally. Rank 5."""

import json
import math
import statistics
import sys
import threading
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aiowheel.cli._destination import check_folder
from aiowheel.cli._duration import duration
from aiowheel.cli._spark_options import on_this_machine
from aiowheel.errors import AiowheelError, BadInputError
from aiowheel.jobs.spark.progress import BatchCounts
from aiowheel.jobs.spark.stream_run import StreamRun, Until

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

_LONGEST_LATENESS = 31_536_000  # a year
_LOOK_SECONDS = 0.5

MaxLateness = Annotated[
    float, duration(least=0, help="Stream: how far a row may lie behind the newest one.")
]
CheckpointFolder = Annotated[
    str | None, typer.Option(metavar="FOLDER", help="Stream: default OUT/checkpoint.")
]
Once = Annotated[bool, typer.Option("--once", help="Stream: end when the input is worked off.")]
Drain = Annotated[
    bool, typer.Option("--drain", help="Stream: likewise, and let time run out for what is open.")
]
Shards = Annotated[
    int, typer.Option(min=1, help="Stream: engines that share the keys; fixed by the checkpoint.")
]
FilesPerBatch = Annotated[
    int, typer.Option(min=1, help="Stream: of each folder, at most so many files a micro-batch.")
]
DeleteFiles = Annotated[
    bool,
    typer.Option("--delete-files", help="Stream: of folders, delete each file after its rows."),
]
RecordsPerBatch = Annotated[
    int, typer.Option(min=1, help="Stream: of each topic, at most so many records a micro-batch.")
]


@dataclass(frozen=True)
class StreamLimits:
    """The options that only streams have, with their defaults.

    Attributes:
        max_lateness: How far a row may lie behind the newest one, in seconds.
        max_ahead: How far a row may lie after now, in seconds; `aiowheel purgatory` only.
        checkpoint: The folder that remembers how far the stream is; None is inside the results.
        once: Whether to end when the input is worked off.
        drain: The same, and let time run out for what is open.
        shards: Engines that share the keys.
        files_per_batch: The most files of a folder in one micro-batch.
        delete_files: Whether each file of a folder is deleted after its micro-batch.
        records_per_batch: The most records of a topic in one micro-batch.
    """

    max_lateness: float = 0.0
    max_ahead: float = 86_400.0  # a day
    checkpoint: str | None = None
    once: bool = False
    drain: bool = False
    shards: int = 16
    files_per_batch: int = 100
    delete_files: bool = False
    records_per_batch: int = 1_000_000

    def until(self) -> Until:
        """When the options let a stream end.

        Raises:
            BadInputError: Both are given.
        """
        if self.once and self.drain:
            raise BadInputError("--once and --drain exclude each other")
        return Until.DRAINED if self.drain else Until.ONCE if self.once else Until.STOPPED

    def refuse(self) -> None:
        """Refuse the options in a run that is no stream; a default is as good as none.

        Raises:
            BadInputError: One is given.
        """
        for each in fields(self):
            if getattr(self, each.name) != each.default:
                raise BadInputError(f"--{each.name.replace('_', '-')} is for --stream")


def lateness_ms(seconds: float) -> int:
    """The milliseconds of ``--max-lateness``.

    Raises:
        BadInputError: It is more than a year.
    """
    if not seconds <= _LONGEST_LATENESS:
        raise BadInputError(f"--max-lateness must be at most {_LONGEST_LATENESS} s, got {seconds}")
    return math.ceil(seconds * 1_000)


def checkpoint_of(given: str | None, out: str) -> Path:
    """The folder of ``--checkpoint``, by default the one inside *out*.

    Raises:
        BadInputError: It does not lie on this machine, or neither does.
    """
    shared = "a folder on a disk that the driver and all workers share"
    if given is not None:
        return on_this_machine(given, f"--checkpoint must be {shared}")
    return on_this_machine(out, f"needs --checkpoint, {shared}") / "checkpoint"


def check_places(watched: Path, out: Path | None, checkpoint: Path) -> None:
    """Refuse folders for results in which files are watched for.

    Args:
        watched: Where files arrive.
        out: Of the results; None if they lie elsewhere.
        checkpoint: Of the stream.

    Raises:
        BadInputError: One lies there, or cannot be a folder of ours.
    """
    for option, place in (("--out", out), ("--checkpoint", checkpoint)):
        if place is None:
            continue
        if place.resolve().is_relative_to(watched.resolve()):
            raise BadInputError(f"{option} must be outside the watched folder, got {place}")
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


#: Called with the number of a micro-batch, its rows and its duration in seconds.
ReportBatch = Callable[[int, BatchCounts, float], object]


def batch_line(*, as_json: bool) -> ReportBatch:
    """Make a function that prints a line on stderr for each micro-batch with rows."""

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


class BatchTally:
    """What the micro-batches of one run did, from Spark's reports on them.

    Args:
        report: Called with each batch.

    Attributes:
        seconds: How long each took that had rows.
        empty_seconds: How long each took that had none.
    """

    def __init__(self, report: ReportBatch | None = None) -> None:
        self.seconds: list[float] = []
        self.empty_seconds: list[float] = []
        self._report = report
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
            counts = self._add(batch)
            (self.seconds if counts.rows else self.empty_seconds).append(seconds)
            if self._report is not None:
                self._report(batch.batchId, counts, seconds)

    @abstractmethod
    def _add(self, batch: "StreamingQueryProgress") -> BatchCounts:
        """Add one batch; returns its rows."""

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
