"""`aiowheel report`: a report on the purgatories of a trace. Rank 5."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from aiowheel.cli._job_output import print_json, print_lines
from aiowheel.cli._options import Json, Trace, path_of
from aiowheel.cli._session import Conf, Master, Verbose, job_session
from aiowheel.errors import MissingExtraError

_PIPE_WIDTH = 160


def report(
    trace: Trace,
    *,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for the report.", parser=path_of)
    ] = Path("report"),
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Report on a trace: timeouts, their lateness, and the keys concerned.

    Writes an HTML page and a Parquet file per table, and prints the most important tables.

    \b
    Example:
      aiowheel report trace/ --out report/
      aiowheel report trace/ --master spark://10.0.0.1:7077 --json
    """
    try:
        from aiowheel.jobs.report.job import run_report
    except ImportError as error:
        raise MissingExtraError("spark") from error

    with job_session("report", trace, out, master=master, conf=conf, verbose=verbose) as spark:
        result = run_report(trace, out, spark)
    if json:
        tables = {name: table.to_pylist() for name, table in result.tables.items()}
        found = {"operations": result.operations, "origin": dict(result.origin)}
        print_json({**found, "page": str(result.page), "tables": tables})
        return
    from aiowheel.jobs.report.text import print_report

    console = Console()
    # A pipe has no width of its own: this one is wide enough not to cut names.
    print_report(result.tables, console if console.is_terminal else Console(width=_PIPE_WIDTH))
    print_lines({**result.origin, "page": str(result.page)}.items())
