"""`aiowheel idle`: when did each key fall silent? Rank 5."""

import time as clock
from pathlib import Path
from typing import Annotated

import typer

from aiowheel.cli._idle_file import check_destination
from aiowheel.cli._idle_run import Engine, run_engine
from aiowheel.errors import BadInputError
from aiowheel.readers import (
    LATEST_TIME,
    Format,
    Inputs,
    TimedRows,
    TimeFormat,
    Unit,
    duration_in_unit,
    time_parser,
)


def idle(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Files, folders, globs; gz and tar.gz.")
    ],
    *,
    timeout: Annotated[float, typer.Option(help="Idle after more than so many seconds.")],
    out: Annotated[Path, typer.Option(metavar="OUT.csv", help="The file of fire,key to write.")],
    key: Annotated[str, typer.Option(metavar="COL", help="Key column; clf: host.")] = "",
    time: Annotated[str, typer.Option(metavar="COL", help="Time column; clf: time.")] = "",
    format: Annotated[Format | None, typer.Option(help="Default: by the file's suffix.")] = None,  # noqa: A002
    unit: Annotated[Unit, typer.Option(help="Unit of the integer times, in and out.")] = Unit.S,
    time_format: Annotated[
        TimeFormat | None, typer.Option(help="Default: epoch; clf: clf.")
    ] = None,
    engine: Annotated[Engine, typer.Option(help="Both write the same file.")] = Engine.WHEEL,
    strict: Annotated[bool, typer.Option("--strict", help="End at the first bad row.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Find when keys fell idle: no row for more than the timeout.

    \b
    Example:
      aiowheel idle access.log --format clf --timeout 30 --out idle.csv
      aiowheel idle spans/ --format csv --key TraceID --time StartTimeUnixNano --unit ns
          --timeout 30 --engine spark --out idle.csv
    """
    from aiowheel.cli._idle_report import IdleReport, Progress, print_remarks, print_report

    started = clock.perf_counter()
    try:
        ticks = duration_in_unit(timeout, unit)
    except ValueError as error:
        raise BadInputError(f"--timeout: {error}") from error
    check_destination(out)
    inputs = Inputs(files, format)
    if out.resolve() in {path.resolve() for path in inputs.paths}:
        raise BadInputError(f"{out}: is one of the inputs, --out wants another file")
    is_clf = inputs.format is Format.CLF
    written = time_format or (TimeFormat.CLF if is_clf else TimeFormat.EPOCH)
    rows = TimedRows(
        inputs,
        key=_column(key, "--key", "host" if is_clf else ""),
        time=_column(time, "--time", "time" if is_clf else ""),
        parse_time=time_parser(written, unit),
        latest=LATEST_TIME - ticks,
        strict=strict,
    )
    with Progress() as progress:
        summary, keys = run_engine(engine, inputs, rows, ticks, out, progress)
    print_remarks(rows)
    report = IdleReport(
        engine=engine,
        unit=unit,
        timeout=ticks,
        files=rows.files,
        rows_read=rows.accepted + rows.rejected,
        rows=rows.accepted,
        rejected=rows.rejected,
        irregular=rows.irregular,
        keys=keys,
        idle_events=summary.events,
        first=summary.first,
        last=summary.last,
        sha256=summary.sha256,
        out=str(out),
        seconds=round(clock.perf_counter() - started, 3),
    )
    print_report(report, as_json=json)


def _column(given: str, option: str, usual: str) -> str:
    if not (given or usual):
        raise BadInputError(f"{option} is needed: which column?")
    return given or usual
