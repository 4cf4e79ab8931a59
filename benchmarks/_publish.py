"""The option `--out` of `aiowheel bench`, and the writing of its reports."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from aiowheel._printable import printable
from aiowheel.cli._destination import STANDARD_OUTPUT, check_destination, check_folder
from aiowheel.cli._options import path_of
from aiowheel.errors import MissingExtraError
from benchmarks._report import Report

_FOLDER = Path("aiowheel-bench")


def _destination(out: Path | None) -> Path | None:
    if out is None:
        check_folder(_FOLDER, "the default of --out")
    else:
        check_destination(out, or_stdout=True)
    return out


Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="JSON file for all rounds; - prints them.",
        parser=path_of,
        callback=_destination,
    ),
]


def publish(report: Report, out: Path | None, *, as_json: bool, judged: bool) -> Path:
    """Print a report, as tables or JSON, and write it to a file; return the path of the file.

    Verdicts are printed only if *judged*: their bounds apply to full sizes. The JSON has them all.
    """
    if out is not None and out == STANDARD_OUTPUT:
        print(report.as_json(), end="")
        return out
    if as_json:
        print(report.as_json(), end="")
    else:
        report.print(judged=judged)
    path = out or _FOLDER / f"{report.program}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    report.write(path)
    if not as_json:
        print(f"\nall rounds: {printable(path)}")
    return path


def publish_summary(programs: Sequence[str]) -> None:
    """Draw a chart of the default files of *programs*, and print its path.

    Without matplotlib, print that there is no chart.
    """
    from benchmarks._summary import draw_summary

    runs = [json.loads((_FOLDER / f"{name}.json").read_bytes()) for name in programs]
    picture = _FOLDER / "summary.png"
    try:
        draw_summary(runs, picture)
    except MissingExtraError as error:
        print(f"aiowheel: no picture: {error}", file=sys.stderr)
        return
    print(f"\nsummary: {picture}")
