"""`aiowheel idle`: finds when each key fell idle. Rank 5."""

from functools import partial
from typing import Annotated

import typer

from aiowheel.cli._duration import duration
from aiowheel.cli._idle_run import FileOptions, run_files
from aiowheel.cli._idle_stream import StreamOptions, run_stream
from aiowheel.cli._idle_table import TableOptions
from aiowheel.cli._idle_uri import run_table
from aiowheel.cli._kafka_config import KafkaConfig, options_of_topics
from aiowheel.cli._options import Engine, Json, on_this_machine, refuse
from aiowheel.cli._session import Conf, Master, Verbose, spark_session
from aiowheel.cli._stream_run import (
    BatchInterval,
    CheckpointFolder,
    DeleteFiles,
    Drain,
    FilesPerBatch,
    MaxLateness,
    Once,
    RecordsPerBatch,
    Shards,
    StreamLimits,
)
from aiowheel.jobs.spark.uris import local_path
from aiowheel.readers import Format, TimeFormat, Unit


def idle(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="Files, folders, globs, gz and tar.gz; or one URI."),
    ],
    *,
    timeout: Annotated[float, duration(help="A key without a row for longer is idle.")],
    out: Annotated[
        str,
        typer.Option(metavar="OUT.csv", help="Result: a file; a folder with --stream; or a URI."),
    ],
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COL",
            show_default="clf: host",
            help="Key column; may be repeated: the first that is present.",
        ),
    ] = None,
    time: Annotated[
        str, typer.Option(metavar="COL", show_default="clf: time; zeek: ts", help="Time column.")
    ] = "",
    format: Annotated[  # noqa: A002
        Format | None, typer.Option(show_default="by the suffix", help="Format of the files.")
    ] = None,
    unit: Annotated[Unit, typer.Option(help="Unit of integer times, read and written.")] = Unit.S,
    time_format: Annotated[
        TimeFormat | None,
        typer.Option(show_default="epoch; clf: clf; zeek: decimal", help="Format of the times."),
    ] = None,
    earliest: Annotated[
        int, typer.Option(metavar="TIME", min=0, help="Reject earlier times; in the unit.")
    ] = 0,
    latest: Annotated[
        int | None,
        typer.Option(
            metavar="TIME",
            min=0,
            show_default="with --stream: a day from now",
            help="Reject later times; in the unit.",
        ),
    ] = None,
    rejects: Annotated[
        str | None,
        typer.Option(metavar="BAD.csv", help="File for rejected rows and their reasons."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail at the first bad row.")] = False,
    engine: Annotated[
        Engine, typer.Option(help="Engine; both write the same result.")
    ] = Engine.WHEEL,
    stream: Annotated[
        bool, typer.Option("--stream", help="Follow a folder or a table by URI. Runs on Spark.")
    ] = False,
    max_lateness: MaxLateness = StreamLimits.max_lateness,
    checkpoint: CheckpointFolder = None,
    once: Once = False,
    drain: Drain = False,
    shards: Shards = StreamLimits.shards,
    files_per_batch: FilesPerBatch = StreamLimits.files_per_batch,
    delete_files: DeleteFiles = False,
    records_per_batch: RecordsPerBatch = StreamLimits.records_per_batch,
    batch_interval: BatchInterval = StreamLimits.batch_interval,
    kafka_config: KafkaConfig = None,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Find when each key fell idle: it had no row for longer than the timeout.

    \b
    Example:
      aiowheel idle access.log --format clf --timeout 30 --out idle.csv
      aiowheel idle spans/ --format csv --key TraceID --time StartTimeUnixNano --unit ns \\
          --timeout 30 --engine spark --out idle.csv
      aiowheel idle arriving/ --stream --format csv --key user --time at --unit ms \\
          --timeout 30 --max-lateness 5 --out idle/
      aiowheel idle kafka://broker:9092/touches --engine spark --timeout 30 --out delta:s3a://lake/idle
      aiowheel idle kafka://broker:9092/touches --stream --timeout 30 --out delta:s3a://lake/idle \\
          --checkpoint /shared/idle
    """
    files = [_path_or_uri(file) for file in files]
    names = tuple(key or ())
    table = TableOptions(names, time, format, unit, time_format, earliest, latest, strict=strict)
    ticks = table.ticks("--timeout", timeout)
    topic_options = options_of_topics(kafka_config, (*files, out, rejects))
    open_session = partial(
        spark_session, "aiowheel idle", master=master, conf=conf, verbose=verbose
    )
    limits = StreamLimits(
        max_lateness=max_lateness,
        checkpoint=checkpoint,
        once=once,
        drain=drain,
        shards=shards,
        files_per_batch=files_per_batch,
        delete_files=delete_files,
        records_per_batch=records_per_batch,
        batch_interval=batch_interval,
    )
    if stream:
        options = StreamOptions(files, out, rejects, ticks, limits, topic_options)
        run_stream(options, table, open_session, as_json=json)
        return
    limits.refuse()
    if any(local_path(file) is None for file in files):
        table.refuse_columns("is for files, not for a URI")
        refuse({"--latest": latest, "--earliest": earliest}, "is for files, not for a URI")
        refuse({"--engine wheel": engine is Engine.WHEEL}, "reads files of this machine")
        run_table(
            files,
            out,
            rejects,
            timeout=ticks,
            unit=unit,
            form=format,
            topic_options=topic_options,
            open_session=open_session,
            as_json=json,
        )
        return
    place = on_this_machine(out, "the idle events of files go into a file of this machine")
    bad = (
        None
        if rejects is None
        else on_this_machine(rejects, "the rejected rows of files go into a file of this machine")
    )
    if engine is Engine.WHEEL:
        refuse({"--master": master, "--conf": conf}, "is for --engine spark")
    run_files(
        files,
        FileOptions(place, bad, ticks),
        table,
        open_session if engine is Engine.SPARK else None,
        as_json=json,
    )


def _path_or_uri(file: str) -> str:
    """Return the path of a ``file`` URI, and any other *file* unchanged."""
    return str(local_path(file)) if file.startswith("file://") else file
