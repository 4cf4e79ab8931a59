"""`aiowheel purgatory --stream`: follows two tables until a signal or a limit. Rank 5."""

import math
import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from aiowheel._progress import Progress
from aiowheel.cli._batch_tally import BatchTally, ReportBatch, batch_line
from aiowheel.cli._destination import check_apart
from aiowheel.cli._job_output import print_result
from aiowheel.cli._session import OpenSession
from aiowheel.cli._signals import signals_noted
from aiowheel.cli._stream_run import (
    StreamLimits,
    check_places,
    lateness_ms,
    make_folder,
    run_until_stopped,
)
from aiowheel.errors import BadInputError, MissingExtraError
from aiowheel.jobs.spark.progress import BatchCounts, batch_counts
from aiowheel.jobs.spark.stream_run import StreamRun, Until
from aiowheel.jobs.spark.uris import inside, local_path, whole_uri
from aiowheel.readers import Format, Unit
from aiowheel.readers._inputs import HIDDEN

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from aiowheel.jobs.operations.stream import PurgatoryStream
    from aiowheel.jobs.spark.checkpoint import Checkpoint

FURTHEST_AHEAD = 3_153_600_000  # a hundred years; a later time has no 64-bit nanoseconds


@dataclass(frozen=True, slots=True)
class PurgatoryStreamOptions:
    """The options of a stream, as given; durations are in seconds.

    `topic_options` are those of the reader and the writer of a topic.
    """

    operations: str
    events: str
    out: str
    checkpoint: Path
    unit: Unit
    tick: int
    format: Format | None
    limits: StreamLimits
    topic_options: Mapping[str, str] = field(repr=False)


class _Tally(BatchTally):
    """Totals over the micro-batches of a streaming purgatory."""

    def __init__(self, stream: "PurgatoryStream", report: ReportBatch) -> None:
        super().__init__(report, stream.checkpoint.last_finished_batch())
        self._stream = stream
        self.operations = self.events = self.late = 0

    def _add(self, batch: "StreamingQueryProgress") -> BatchCounts:
        counts = self._stream.checked_counts(batch)
        self.operations += counts.operations
        self.events += counts.events
        self.late += counts.late
        return batch_counts(batch)


def run_stream(
    options: PurgatoryStreamOptions,
    open_session: OpenSession,
    *,
    as_json: bool,
) -> None:
    """Run a stream, and print its result at the end.

    Raises:
        BadInputError: A folder or the checkpoint cannot be used.
        MissingExtraError: PySpark or Java is missing.
        AiowheelError: Spark fails; a later run continues after the last finished micro-batch.
    """
    started = clock.perf_counter()
    until = options.limits.until()
    with signals_noted() as stop, Progress() as progress:
        stream = _stream(options)
        stream.checkpoint.check(stream.settings)  # before Spark's slow start
        tally = _Tally(stream, batch_line(as_json=as_json))
        progress.show("starting Spark")
        ended, before, pending = Until.STOPPED, 0, 0
        if not stop.is_set():
            with open_session(uris=(options.operations, options.events, options.out)) as spark:
                progress.show(f"watching {options.operations} and {options.events}")
                run = StreamRun(stream, spark, tally.take)
                before = stream.count_pending(spark)
                ended = run_until_stopped(run, until, stop)
                pending = stream.count_pending(spark)
    tally.close(stream.checkpoint.last_finished_batch())
    written = stream.finished()
    stream.check_total(before, pending)
    rows = tally.operations + tally.events
    print_result(
        {
            "ended": ended.value,
            "unit": options.unit.value,
            "tick": options.tick,
            "micro_batches": tally.batches,
            "rows": rows,
            "operations": tally.operations,
            "events": tally.events,
            "rejected": sum(batch.rejects for batch in written),
            "late": tally.late,
            "pending_before": before,
            "outcomes": sum(batch.outcomes for batch in written),
            "pending": pending,
            "rows_per_second": tally.rate(rows),
            "batch_seconds": tally.batch_seconds,
            "fixed_seconds": tally.fixed_seconds,
            "out": options.out,
            "seconds": round(clock.perf_counter() - started, 3),
        },
        as_json=as_json,
    )


def _stream(options: PurgatoryStreamOptions) -> "PurgatoryStream":
    try:
        from aiowheel.jobs.operations.stream import PurgatoryStream
        from aiowheel.jobs.spark.checkpoint import Checkpoint
    except ImportError as error:
        raise MissingExtraError("spark") from error
    late_ms = lateness_ms(options.limits.max_lateness)
    if not options.limits.max_ahead <= FURTHEST_AHEAD:
        raise BadInputError(
            f"--max-ahead must be at most {FURTHEST_AHEAD} s, got {options.limits.max_ahead}"
        )
    tables = (options.operations, options.events)
    if whole_uri(tables[0]) == whole_uri(tables[1]):
        raise BadInputError(f"{tables[1]}: operations and events must be two tables")
    places = [_watched(uri, options) for uri in tables]
    for name in ("outcomes", "rejects"):
        check_apart(tables, {"--out": inside(options.out, name)}, are_replaced=False)
    checkpoint = Checkpoint(options.checkpoint.resolve())
    formats = _formats(options, places, checkpoint)
    if (out := local_path(options.out)) is not None:
        make_folder(out)
    return PurgatoryStream(
        operations=tables[0],
        events=tables[1],
        out=options.out,
        checkpoint=checkpoint,
        unit=options.unit,
        tick=options.tick,
        max_lateness_ms=late_ms,
        max_ahead_ms=math.ceil(options.limits.max_ahead * 1_000),
        operations_format=formats[0],
        events_format=formats[1],
        shards=options.limits.shards,
        files_per_batch=options.limits.files_per_batch,
        records_per_batch=options.limits.records_per_batch,
        interval_ms=options.limits.interval_ms,
        delete_files=options.limits.delete_files,
        topic_options=options.topic_options,
    )


def _watched(uri: str, options: PurgatoryStreamOptions) -> Path | None:
    """Return the watched folder, if the table is a folder on this machine; otherwise None."""
    folder = local_path(uri)
    if folder is None:
        return None
    if not folder.is_dir():
        raise BadInputError(f"{uri}: no such folder; a stream on this machine watches a folder")
    check_places(folder, local_path(options.out), options.checkpoint)
    return folder


def _formats(
    options: PurgatoryStreamOptions, places: Sequence[Path | None], checkpoint: "Checkpoint"
) -> list[Format]:
    """Return the formats of the two tables: as given, as at the first start, or as the files have.

    A folder without a file, in which the files are still to come, has the format of the other one.
    """
    from aiowheel.jobs.operations.files import format_of_trace

    found: list[Format | None] = []
    for name, place in zip(("operations", "events"), places, strict=True):
        form = options.format
        if form is None and (stored := checkpoint.setting(f"{name}_format")) is not None:
            form = Format(str(stored))
        if place is None:
            form = form or Format.PARQUET
        elif form is not None or _holds_files(place):
            form = format_of_trace(place, form)
        found.append(form)
    known = next(filter(None, found), None)
    if known is None:
        raise BadInputError(f"{options.operations}: holds no file yet: give --format")
    return [form or known for form in found]


def _holds_files(folder: Path) -> bool:
    return any(path.is_file() and not path.name.startswith(HIDDEN) for path in folder.rglob("*"))
