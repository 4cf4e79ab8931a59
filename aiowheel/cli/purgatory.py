"""`aiowheel purgatory`: finds which operations completed in time. Rank 5."""

import sys
import time as clock
from collections.abc import Callable, Sequence
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from aiowheel._printable import printable
from aiowheel._progress import Progress
from aiowheel.cli._destination import check_apart, check_folder
from aiowheel.cli._duration import duration
from aiowheel.cli._job_output import print_result
from aiowheel.cli._kafka_config import KafkaConfig, options_of_topics
from aiowheel.cli._options import Engine, Json, number, on_this_machine, refuse, refuse_pipes
from aiowheel.cli._purgatory_stream import PurgatoryStreamOptions, run_stream
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
    checkpoint_of,
)
from aiowheel.errors import AiowheelError, MissingExtraError
from aiowheel.jobs.operations.shard import LONGEST_TICK
from aiowheel.jobs.spark.uris import inside, local_path
from aiowheel.readers import Format, Unit

if TYPE_CHECKING:
    from aiowheel.jobs.operations.results import PurgatoryResult


class TraceFormat(StrEnum):
    """The formats of a trace; other formats have no lists of keys."""

    PARQUET = Format.PARQUET.value
    NDJSON = Format.NDJSON.value
    CSV = Format.CSV.value


def purgatory(
    operations: Annotated[
        str, typer.Argument(metavar="OPS", help="Operations: a file, a folder or a URI.")
    ],
    events: Annotated[
        str, typer.Argument(metavar="EVENTS", help="Events: a file, a folder or a URI.")
    ],
    *,
    out: Annotated[
        str, typer.Option(metavar="PLACE", help="Folder or URI for outcomes and rejects.")
    ],
    unit: Annotated[Unit, typer.Option(help="Unit of all times, read and written.")] = Unit.MS,
    tick: Annotated[
        int,
        number(min=1, max=LONGEST_TICK, help="Tick of the wheel, in the unit."),
    ] = 1,
    format: Annotated[  # noqa: A002
        TraceFormat | None, typer.Option(show_default="by the suffix", help="Format of the files.")
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="Engine; both write the same outcomes.")
    ] = Engine.WHEEL,
    stream: Annotated[
        bool, typer.Option("--stream", help="Follow two folders or tables by URI. Runs on Spark.")
    ] = False,
    max_lateness: MaxLateness = StreamLimits.max_lateness,
    max_ahead: Annotated[
        float, duration(least=0, help="Stream: reject rows further in the future.")
    ] = StreamLimits.max_ahead,
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
    """Replay operations and events, and find which operations completed and which timed out.

    \b
    Example:
      aiowheel purgatory operations.ndjson events.ndjson --unit ms --out found/
      aiowheel purgatory ops/ events/ --unit us --tick 1000 --engine spark --out found/
      aiowheel purgatory s3a://lake/ops kafka://broker:9092/events --engine spark --out s3a://lake/found
      aiowheel purgatory ops/ events/ --stream --max-lateness 5 --out found/
      aiowheel purgatory kafka://broker:9092/ops kafka://broker:9092/events --stream \\
          --checkpoint /shared/found --out delta:s3a://lake/found
    """
    started = clock.perf_counter()
    form = None if format is None else Format(format)
    topic_options = options_of_topics(kafka_config, (operations, events, out))
    open_session = partial(
        spark_session, "aiowheel purgatory", master=master, conf=conf, verbose=verbose
    )
    limits = StreamLimits(
        max_lateness=max_lateness,
        max_ahead=max_ahead,
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
        options = PurgatoryStreamOptions(
            operations=operations,
            events=events,
            out=out,
            checkpoint=checkpoint_of(checkpoint, out),
            unit=unit,
            tick=tick,
            format=form,
            limits=limits,
            topic_options=topic_options,
        )
        run_stream(options, open_session, as_json=json)
        return
    limits.refuse()
    _check_out(out, (operations, events))
    try:
        with Progress() as progress:
            progress.show("replaying the trace")
            if engine is Engine.WHEEL:
                refuse({"--master": master, "--conf": conf}, "is for --engine spark")
                result = _on_wheel(operations, events, out, tick, form)
            else:
                refuse_pipes(filter(None, map(local_path, (operations, events))))
                run = _on_spark()
                with (
                    open_session(uris=(operations, events, out)) as spark,
                    progress.tasks_of(spark, "replaying the trace"),
                ):
                    places = operations, events, out
                    result = run(spark, *places, tick, form, topic_options=topic_options)
    except OSError as error:
        raise AiowheelError(f"{error.filename or out}: {error.strerror}") from error
    print_result(
        {
            "engine": engine.value,
            "unit": unit.value,
            "tick": tick,
            **asdict(result),
            "out": out,
            "seconds": round(clock.perf_counter() - started, 3),
        },
        as_json=json,
    )
    if result.rejected:
        noun = "row" if result.rejected == 1 else "rows"
        place = printable(inside(out, "rejects"))
        print(f"aiowheel: {result.rejected:,} {noun} rejected: see {place}", file=sys.stderr)


def _on_wheel(
    operations: str, events: str, out: str, tick: int, form: Format | None
) -> "PurgatoryResult":
    try:
        from aiowheel.jobs.operations.in_process import run_replay
    except ImportError as error:
        raise MissingExtraError("trace") from error
    why = "--engine wheel reads and writes files of this machine"
    paths = [on_this_machine(uri, why) for uri in (operations, events, out)]
    return run_replay(paths[0], paths[1], paths[2], tick, form)


def _on_spark() -> "Callable[..., PurgatoryResult]":
    try:
        from aiowheel.jobs.operations.batch import run_purgatory
    except ImportError as error:
        raise MissingExtraError("spark") from error
    return run_purgatory


def _check_out(out: str, inputs: Sequence[str]) -> None:
    """Refuse a place that cannot hold the results.

    Raises:
        BadInputError: *out* is not a writable folder, or lies in one of *inputs*, or an input is
            one of its tables.
    """
    for name in ("outcomes", "rejects"):
        check_apart(inputs, {"--out": inside(out, name)})
    if (place := local_path(out)) is not None:
        check_folder(place)
