"""`aiowheel idle --stream`: follow the stream until a signal or a limit ends it. Rank 5."""

import time as clock
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aiowheel.cli._idle_report import Progress
from aiowheel.cli._idle_stream_report import StreamTally, print_stream_report, stream_report
from aiowheel.cli._idle_table import TableOptions
from aiowheel.cli._signals import signals_noted
from aiowheel.cli._stream_run import check_places, lateness_ms, make_folder, run_until_stopped
from aiowheel.errors import MissingExtraError
from aiowheel.jobs.spark.stream_run import StreamRun, Until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aiowheel.jobs.idle.stream import IdleStream


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Where a stream runs from and to, and within which bounds.

    Attributes:
        folder: Where files arrive.
        out: Where the result goes.
        checkpoint: What remembers how far the stream is.
        timeout: In the unit of the rows.
        max_lateness: In seconds.
        files_per_batch: At most so many files a micro-batch.
        until: When to end.
    """

    folder: Path
    out: Path
    checkpoint: Path
    timeout: int
    max_lateness: float
    files_per_batch: int
    until: Until


def run_stream(
    options: StreamOptions,
    table: TableOptions,
    open_session: Callable[[], AbstractContextManager["SparkSession"]],
    *,
    as_json: bool,
) -> None:
    """Run a stream, and tell about it when it ends.

    Raises:
        BadInputError: Folder or checkpoint cannot be used, or, when strict, a row or file is bad.
        MissingExtraError: PySpark or Java is missing.
        AiowheelError: Spark fails; a later run goes on after the last finished micro-batch.
    """
    started = clock.perf_counter()
    tally = StreamTally()
    with signals_noted() as stop, Progress() as progress:
        stream = _stream(options, table)
        stream.checkpoint.check(stream.settings)  # before Spark's slow start
        progress.waiting("starting Spark")
        ended = Until.STOPPED
        if not stop.is_set():
            with open_session() as spark:
                progress.waiting(f"watching {stream.folder}")
                ended = run_until_stopped(StreamRun(stream, spark, tally.take), options.until, stop)
    print_stream_report(
        stream_report(stream, ended, tally, clock.perf_counter() - started), as_json=as_json
    )


def _stream(options: StreamOptions, table: TableOptions) -> "IdleStream":
    try:
        from aiowheel.jobs.idle.stream import IdleStream
        from aiowheel.jobs.spark.checkpoint import Checkpoint
    except ImportError as error:
        raise MissingExtraError("spark") from error
    from aiowheel.jobs.spark.java import find_java

    late_ms = lateness_ms(options.max_lateness)
    files = table.files(options.timeout)
    check_places(options.folder, options.out, options.checkpoint)
    find_java()  # report a missing one before anything is made
    make_folder(options.out)
    return IdleStream(
        folder=options.folder.resolve(),
        out=options.out.resolve(),
        checkpoint=Checkpoint(options.checkpoint.resolve()),
        files=files,
        timeout=options.timeout,
        max_lateness_ms=late_ms,
        files_per_batch=options.files_per_batch,
    )
