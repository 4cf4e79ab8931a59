"""`aiowheel idle --stream`: follows a folder or a table until a signal or a limit. Rank 5."""

import time as clock
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiowheel._progress import Progress
from aiowheel.cli._batch_tally import batch_line
from aiowheel.cli._destination import check_apart
from aiowheel.cli._idle_stream_report import StreamTally, print_stream_report, stream_report
from aiowheel.cli._idle_table import TableOptions, watched_folder
from aiowheel.cli._options import on_this_machine, refuse
from aiowheel.cli._session import OpenSession
from aiowheel.cli._signals import signals_noted
from aiowheel.cli._stream_run import (
    StreamLimits,
    check_places,
    checkpoint_of,
    lateness_ms,
    make_folder,
    run_until_stopped,
)
from aiowheel.errors import BadInputError, MissingExtraError
from aiowheel.jobs.spark.stream_run import StreamRun, Until
from aiowheel.jobs.spark.uris import inside, local_path
from aiowheel.readers import Format

if TYPE_CHECKING:
    from aiowheel.jobs.idle.stream import IdleStream
    from aiowheel.jobs.idle.table_stream import IdleTableStream


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Input, output and limits of a stream.

    Attributes:
        touches: A folder where files arrive, or the URI of a table.
        out: A folder, or the URI of a table.
        rejects: The URI of a table for rejected rows. None: a result folder holds them; with a
            table as the result, they are only counted.
        timeout: Timeout in the unit of the rows.
        limits: The options of all streams.
        topic_options: Options for the reader and the writer of a topic.
    """

    touches: list[str]
    out: str
    rejects: str | None
    timeout: int
    limits: StreamLimits
    topic_options: Mapping[str, str] = field(repr=False)

    @property
    def uris(self) -> list[str]:
        """The places that the stream reads and writes, as given."""
        places = (*self.touches, self.out, self.rejects)
        return [place for place in places if place is not None]

    @property
    def is_of_files(self) -> bool:
        """Whether the stream reads files and writes a folder, both on this machine."""
        return all(local_path(place) is not None for place in (*self.touches, self.out))


def run_stream(
    options: StreamOptions,
    table: TableOptions,
    open_session: OpenSession,
    *,
    as_json: bool,
) -> None:
    """Run a stream, and print its report at the end.

    Raises:
        BadInputError: A place or the checkpoint cannot be used; with --strict, also for a bad row
            or file.
        MissingExtraError: PySpark or Java is missing.
        AiowheelError: Spark fails; a later run continues after the last finished micro-batch.
    """
    started = clock.perf_counter()
    until = options.limits.until()
    with signals_noted() as stop, Progress() as progress:
        stream = _stream(options, table)
        stream.checkpoint.check(stream.settings)  # before Spark's slow start
        last_batch = stream.checkpoint.last_finished_batch()
        tally = StreamTally(batch_line(as_json=as_json), last_batch)
        progress.show("starting Spark")
        ended = Until.STOPPED
        if not stop.is_set():
            with open_session(uris=options.uris) as spark:
                progress.show(f"watching {options.touches[0]}")
                ended = run_until_stopped(StreamRun(stream, spark, tally.take), until, stop)
    tally.close(stream.checkpoint.last_finished_batch())
    print_stream_report(
        stream_report(stream, options.out, ended, tally, clock.perf_counter() - started),
        _rejects_hint(options),
        _late_hint(options, stream) if last_batch < 0 and tally.late else "",
        as_json=as_json,
    )


def _rejects_hint(options: StreamOptions) -> str:
    if local_path(options.out) is not None:
        return f"see {inside(options.out, 'rejects')}"
    return "--rejects keeps them" if options.rejects is None else f"see {options.rejects}"


def _late_hint(options: StreamOptions, stream: "IdleStream | IdleTableStream") -> str:
    """Return a likely cause of late rows in the first run of a stream, or no text.

    Rows within a micro-batch may have any order. A backlog in several ones has that of its files.
    """
    from aiowheel.jobs.spark.source_files import files_of_batch

    most = options.limits.files_per_batch
    if len(files_of_batch(stream.checkpoint.folder, 0)) < most:
        return ""
    return (
        f"; the first micro-batch was full (--files-per-batch {most}): "
        "a backlog needs a higher number"
    )


def _stream(options: StreamOptions, table: TableOptions) -> "IdleStream | IdleTableStream":
    try:
        from aiowheel.jobs.idle.stream import IdleStream
        from aiowheel.jobs.spark.checkpoint import Checkpoint
    except ImportError as error:
        raise MissingExtraError("spark") from error
    from aiowheel.jobs.spark.java import find_java

    if not options.is_of_files:
        stream = _table_stream(options, table)
        find_java()
        return stream
    refuse({"--rejects": options.rejects}, "is not for --stream: see OUT/rejects")
    late_ms = lateness_ms(options.limits.max_lateness)
    folder = watched_folder(options.touches)
    files = table.files(options.timeout)
    out = on_this_machine(options.out, "")
    checkpoint = checkpoint_of(options.limits.checkpoint, options.out)
    check_places(folder, out, checkpoint)
    for name in ("events", "rejects"):
        check_apart(options.touches, {"--out": inside(options.out, name)}, are_replaced=False)
    find_java()  # reports a missing Java before any folder is created
    make_folder(out)
    return IdleStream(
        folder=folder.resolve(),
        out=out.resolve(),
        checkpoint=Checkpoint(checkpoint.resolve()),
        files=files,
        timeout=options.timeout,
        max_lateness_ms=late_ms,
        shards=options.limits.shards,
        files_per_batch=options.limits.files_per_batch,
        interval_ms=options.limits.interval_ms,
        delete_files=options.limits.delete_files,
    )


def _table_stream(options: StreamOptions, table: TableOptions) -> "IdleTableStream":
    from aiowheel.jobs.idle.table_stream import IdleTableStream
    from aiowheel.jobs.spark.checkpoint import Checkpoint
    from aiowheel.jobs.spark.sources import Source

    if len(options.touches) != 1:
        raise BadInputError(f"{' '.join(options.touches)}: --stream reads one table or folder")
    table.refuse_columns("is for files, not for a table of key and t")
    (touches,) = options.touches
    checkpoint = checkpoint_of(options.limits.checkpoint, options.out)
    out, rejects = options.out, options.rejects
    if (place := local_path(out)) is not None:
        refuse({"--rejects": rejects}, "is not for a folder on this machine: see OUT/rejects")
        out, rejects = inside(out, "events"), inside(out, "rejects")
    if (watched := local_path(touches)) is not None:
        check_places(watched_folder([str(watched)]), place, checkpoint)
    check_apart(
        options.touches,
        {"--out": out} | ({} if rejects is None else {"--rejects": rejects}),
        are_replaced=False,
    )
    latest, limit = table.bounds_of_stream(options.timeout)
    most = options.limits.files_per_batch, options.limits.records_per_batch
    delete = options.limits.delete_files
    return IdleTableStream(
        touches=Source.of_stream(
            touches,
            table.format or Format.PARQUET,
            *most,
            delete=delete,
            options=options.topic_options,
        ),
        out=out,
        rejects=rejects,
        checkpoint=Checkpoint(checkpoint.resolve()),
        unit=table.unit,
        timeout=options.timeout,
        max_lateness_ms=lateness_ms(options.limits.max_lateness),
        earliest=table.earliest,
        latest=latest,
        limit=limit,
        shards=options.limits.shards,
        interval_ms=options.limits.interval_ms,
        topic_options=options.topic_options,
    )
