"""Shared parts of the stream commands: options, their checks, a run until a signal. Rank 5."""

import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from aiowheel.cli._destination import check_folder
from aiowheel.cli._duration import duration
from aiowheel.cli._options import number, on_this_machine
from aiowheel.errors import AiowheelError, BadInputError
from aiowheel.jobs.spark.stream_run import (
    FILES_PER_BATCH,
    INTERVAL_MS,
    LONGEST_LATENESS,
    MOST_SHARDS,
    RECORDS_PER_BATCH,
    SHARDS,
    StreamRun,
    Until,
)

_CHECK_SECONDS = 0.5  # between two checks whether the run has ended or must stop

MaxLateness = Annotated[
    float, duration(least=0, help="Stream: drop rows further behind the newest one.")
]
CheckpointFolder = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER", show_default="OUT/checkpoint", help="Stream: folder of its state."
    ),
]
Once = Annotated[bool, typer.Option("--once", help="Stream: end when the input is processed.")]
Drain = Annotated[
    bool, typer.Option("--drain", help="Stream: as --once, and expire all that is pending.")
]
Shards = Annotated[
    int,
    number(
        min=1,
        max=MOST_SHARDS,
        help="Stream: shards of the keys; fixed by the checkpoint.",
    ),
]
FilesPerBatch = Annotated[
    int,
    number(
        min=1,
        max=2**31 - 1,
        help="Stream: maximum files per folder and micro-batch, by time of modification; for a "
        "backlog, more than it has.",
    ),
]
BatchInterval = Annotated[
    float,
    duration(least=0, most=86_400, help="Stream: time from one micro-batch to the next."),
]
DeleteFiles = Annotated[
    bool,
    typer.Option("--delete-files", help="Stream: delete each file after its rows are processed."),
]
RecordsPerBatch = Annotated[
    int,
    number(min=1, max=2**63 - 1, help="Stream: maximum records per topic and micro-batch."),
]


@dataclass(frozen=True)
class StreamLimits:
    """The options that only streams have, with their defaults.

    Attributes:
        max_lateness: Rows further behind the newest one are dropped; in seconds.
        max_ahead: Rows further in the future are rejected; in seconds; `aiowheel purgatory` only.
        checkpoint: Folder of the stream's state; None: inside the results.
        once: Whether to end when the input is processed.
        drain: As *once*, and also expire all that is pending.
        shards: Number of shards of the keys.
        files_per_batch: Maximum number of files per folder and micro-batch.
        delete_files: Whether each file of a folder is deleted after its micro-batch.
        records_per_batch: Maximum number of records per topic and micro-batch.
        batch_interval: Time between the starts of two micro-batches, in seconds.
    """

    max_lateness: float = 0
    max_ahead: float = 86_400  # a day
    checkpoint: str | None = None
    once: bool = False
    drain: bool = False
    shards: int = SHARDS
    files_per_batch: int = FILES_PER_BATCH
    delete_files: bool = False
    records_per_batch: int = RECORDS_PER_BATCH
    batch_interval: float = INTERVAL_MS / 1_000

    def until(self) -> Until:
        """Return the condition that ends the stream.

        Raises:
            BadInputError: Both --once and --drain are given.
        """
        if self.once and self.drain:
            raise BadInputError("--once and --drain exclude each other")
        return Until.DRAINED if self.drain else Until.ONCE if self.once else Until.STOPPED

    @property
    def interval_ms(self) -> int:
        """The time between the starts of two micro-batches, in milliseconds."""
        return round(self.batch_interval * 1_000)

    def refuse(self) -> None:
        """Refuse these options in a run without --stream; default values are accepted.

        Raises:
            BadInputError: An option differs from its default.
        """
        for each in fields(self):
            if getattr(self, each.name) != each.default:
                raise BadInputError(f"--{each.name.replace('_', '-')} is for --stream")


def lateness_ms(seconds: float) -> int:
    """Return ``--max-lateness`` in milliseconds.

    Raises:
        BadInputError: The value is more than a year.
    """
    if not seconds <= LONGEST_LATENESS:
        raise BadInputError(f"--max-lateness must be at most {LONGEST_LATENESS} s, got {seconds}")
    return math.ceil(seconds * 1_000)


def checkpoint_of(given: str | None, out: str) -> Path:
    """Return the folder of ``--checkpoint``, by default a folder inside *out*.

    Raises:
        BadInputError: The folder is not on this machine.
    """
    shared = "a folder on a disk that the driver and all workers share"
    if given is not None:
        return on_this_machine(given, f"--checkpoint must be {shared}")
    return on_this_machine(out, f"needs --checkpoint, {shared}") / "checkpoint"


def check_places(watched: Path, out: Path | None, checkpoint: Path) -> None:
    """Refuse a watched folder that cannot be read, and result folders inside it.

    Args:
        watched: Folder where files arrive.
        out: Folder of the results; None if they are not on this machine.
        checkpoint: Checkpoint of the stream.

    Raises:
        BadInputError: *watched* is not readable; or a folder lies in it, or is not writable.
    """
    if not os.access(watched, os.R_OK | os.X_OK):
        raise BadInputError(f"{watched}: no permission to read there")
    for option, place in (("--out", out), ("--checkpoint", checkpoint)):
        if place is None:
            continue
        if place.resolve().is_relative_to(watched.resolve()):
            raise BadInputError(f"{option} must be outside the watched folder, got {place}")
        check_folder(place, option)


def make_folder(out: Path) -> None:
    """Create the folder of a stream's results.

    Raises:
        BadInputError: The folder cannot be created.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"{out}: {error.strerror}") from error


def run_until_stopped(run: StreamRun, until: Until, stop: threading.Event) -> Until:
    """Run a stream to its end, or until *stop* is set.

    Returns:
        The reason of the end.

    Raises:
        BadInputError: The checkpoint does not belong to the stream, or a file is bad.
        PySparkException: Spark failed.
    """
    # A thread waits for Spark, because an interrupted call would break the connection to Spark.
    with ThreadPoolExecutor(1) as waiting:
        end = waiting.submit(run.run, until)
        while not (stop.is_set() or end.done()):
            wait([end], _CHECK_SECONDS)
        if not end.done():
            run.stop()
    try:
        return end.result()
    except AiowheelError:
        raise
    except Exception:
        if stop.is_set():  # the stop interrupted a micro-batch; the next run repeats it
            return Until.STOPPED
        raise
