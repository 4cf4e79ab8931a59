"""`aiowheel purgatory`: which operations met their keys in time? Rank 5."""

import sys
import time as clock
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aiowheel._printable import printable
from aiowheel.cli._destination import check_folder
from aiowheel.cli._idle_report import Progress
from aiowheel.cli._purgatory_stream import PurgatoryStreamOptions, print_result, run_stream
from aiowheel.cli._spark_options import (
    Conf,
    Master,
    Verbose,
    spark_session,
)
from aiowheel.errors import AiowheelError, BadInputError, MissingExtraError
from aiowheel.jobs.spark.stream_run import Until
from aiowheel.readers import Format, Unit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aiowheel.jobs.operations.results import PurgatoryResult

Session = AbstractContextManager["SparkSession"]
Job = Callable[[Path, Path, Path, int, Format | None], "PurgatoryResult"]


LONGEST_TICK = 3_600_000_000_000  # as of a timer


class TraceFormat(StrEnum):
    """How a trace may be laid out; other formats have no lists of keys."""

    PARQUET = Format.PARQUET.value
    NDJSON = Format.NDJSON.value
    CSV = Format.CSV.value


class PurgatoryEngine(StrEnum):
    """What works off a trace; both write the same outcomes."""

    WHEEL = "wheel"
    SPARK = "spark"


def purgatory(
    operations: Annotated[
        Path, typer.Argument(metavar="OPS", help="Operations: a file, or a folder of files.")
    ],
    events: Annotated[
        Path, typer.Argument(metavar="EVENTS", help="Events: a file, or a folder of files.")
    ],
    *,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Gets the folders outcomes and rejects.")
    ],
    unit: Annotated[Unit, typer.Option(help="Unit of all times, in and out.")] = Unit.MS,
    tick: Annotated[
        int, typer.Option(min=1, max=LONGEST_TICK, help="Of the wheel, in the unit.")
    ] = 1,
    format: Annotated[  # noqa: A002
        TraceFormat | None, typer.Option(help="Default: by the files' suffix.")
    ] = None,
    engine: Annotated[
        PurgatoryEngine, typer.Option(help="Both find the same outcomes.")
    ] = PurgatoryEngine.WHEEL,
    stream: Annotated[
        bool, typer.Option("--stream", help="Watch two folders; files arrive. Runs on Spark.")
    ] = False,
    max_lateness: Annotated[
        float, typer.Option(min=0, help="Stream: seconds a row may lie behind the newest one.")
    ] = 0.0,
    max_ahead: Annotated[
        float, typer.Option(min=0, help="Stream: seconds a row may lie after now.")
    ] = 86_400.0,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Stream: default OUT/checkpoint.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Stream: end when the folders are worked off.")
    ] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="Stream: likewise, and let time run out.")
    ] = False,
    shards: Annotated[
        int, typer.Option(min=1, help="Stream: engines a stage; fixed by the checkpoint.")
    ] = 16,
    files_per_batch: Annotated[
        int, typer.Option(min=1, help="Stream: of each folder, at most so many a micro-batch.")
    ] = 100,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Replay operations and events: which completed, by which key and when, and which timed out.

    \b
    Example:
      aiowheel purgatory operations.ndjson events.ndjson --unit ms --out found/
      aiowheel purgatory ops/ events/ --unit us --tick 1000 --engine spark --out found/
      aiowheel purgatory ops/ events/ --stream --max-lateness 5 --out found/
    """
    started = clock.perf_counter()
    form = None if format is None else Format(format)
    open_session = partial(
        spark_session, "aiowheel purgatory", master=master, conf=conf, verbose=verbose
    )
    if stream:
        _refuse({"--once": once and drain}, "and --drain exclude each other")
        options = PurgatoryStreamOptions(
            operations=operations,
            events=events,
            out=out,
            checkpoint=checkpoint or out / "checkpoint",
            unit=unit,
            tick=tick,
            format=form,
            max_lateness=max_lateness,
            max_ahead=max_ahead,
            shards=shards,
            files_per_batch=files_per_batch,
            until=Until.DRAINED if drain else Until.ONCE if once else Until.STOPPED,
        )
        run_stream(options, open_session, as_json=json)
        return
    of_streams = {"--max-lateness": max_lateness, "--checkpoint": checkpoint}
    _refuse(of_streams | {"--once": once, "--drain": drain}, "is for --stream")
    if engine is PurgatoryEngine.WHEEL:
        _refuse({"--master": master, "--conf": conf}, "is for --engine spark")
    job = _job(engine, open_session)
    check_folder(out)
    for path in (operations, events):
        _refuse_inside(path, out)
    try:
        with Progress() as progress:
            progress.waiting("working off the trace")
            result = job(operations, events, out, tick, form)
    except OSError as error:
        raise AiowheelError(f"{error.filename or out}: {error.strerror}") from error
    print_result(
        {
            "engine": engine.value,
            "unit": unit.value,
            "tick": tick,
            **asdict(result),
            "out": str(out),
            "seconds": round(clock.perf_counter() - started, 3),
        },
        as_json=json,
    )
    if result.rejected:
        noun = "row" if result.rejected == 1 else "rows"
        told = f"{result.rejected:,} {noun} rejected: see {printable(out / 'rejects')}"
        print(f"aiowheel: {told}", file=sys.stderr)


def _job(engine: PurgatoryEngine, open_session: Callable[[], Session]) -> Job:
    try:
        from aiowheel.jobs.operations.in_process import run_replay

        if engine is PurgatoryEngine.WHEEL:
            return run_replay
        from aiowheel.jobs.operations.batch import run_purgatory
    except ImportError as error:
        raise MissingExtraError("spark" if engine is PurgatoryEngine.SPARK else "trace") from error

    def run(
        operations: Path, events: Path, out: Path, tick: int, form: Format | None
    ) -> "PurgatoryResult":
        with open_session() as spark:
            return run_purgatory(spark, operations, events, out, tick, form)

    return run


def _refuse_inside(read: Path, out: Path) -> None:
    """A folder is read at any depth: the next run would take the results of this one for rows."""
    if read.is_dir() and out.resolve().is_relative_to(read.resolve()):
        raise BadInputError(f"{out}: lies in the folder {read}, --out wants another place")


def _refuse(given: Mapping[str, object], why: str) -> None:
    for option, value in given.items():
        if value:
            raise BadInputError(f"{option} {why}")
