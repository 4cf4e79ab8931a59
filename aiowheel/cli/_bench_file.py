"""Where `aiowheel bench` writes its rounds: one option for all of its programs. Rank 5."""

from pathlib import Path
from typing import Annotated

import typer

from aiowheel._printable import printable
from aiowheel.bench._report import Report
from aiowheel.cli._destination import STANDARD_OUTPUT, check_destination, check_folder

_FOLDER = Path("aiowheel-bench")


def _destination(out: Path | None) -> Path | None:
    if out is None:
        check_folder(_FOLDER, "a benchmark without --out")
    else:
        check_destination(out, or_stdout=True)
    return out


Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Where to write all rounds as JSON; - prints them.",
        callback=_destination,
    ),
]


def publish(report: Report, out: Path | None, *, as_json: bool) -> Path:
    """Print a report, as tables or JSON, and write it; returns where it is."""
    if out is not None and out == STANDARD_OUTPUT:
        print(report.as_json(), end="")
        return out
    if as_json:
        print(report.as_json(), end="")
    else:
        report.print()
    path = out or _FOLDER / f"{report.program}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    report.write(path)
    if not as_json:
        print(f"\nall rounds: {printable(path)}")
    return path
