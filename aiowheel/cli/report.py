"""`aiowheel report`: what a trace says about its purgatories. Rank 5."""

from pathlib import Path
from typing import Annotated

import typer

from aiowheel._printable import printable
from aiowheel.cli._destination import check_folder
from aiowheel.cli._spark_options import Conf, Master, Verbose, spark_session
from aiowheel.errors import MissingExtraError
from aiowheel.jobs.spark.uris import local_path

_PIPE_WIDTH = 160


def report(
    trace: Annotated[
        str, typer.Argument(metavar="TRACE", help="A folder that a TraceRecorder wrote to; or URI.")
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the report goes.")] = Path(
        "report"
    ),
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Report on a trace: what timed out, how late, on which keys.

    Writes one HTML page and a Parquet file per table, prints the key tables.

    \b
    Example:
      aiowheel report trace/ --out report/
      aiowheel report trace/ --master spark://10.0.0.1:7077 --json
    """
    from aiowheel.cli._job_output import JobProgress, print_json

    try:
        from aiowheel.jobs.report.job import run_report
        from aiowheel.jobs.report.trace_check import check_trace
    except ImportError as error:
        raise MissingExtraError("spark") from error

    check_folder(out)  # before Spark's slow start
    if (folder := local_path(trace)) is not None:
        check_trace(folder)
    with (
        JobProgress("reporting") as progress,
        spark_session(
            "aiowheel report", master=master, conf=conf, verbose=verbose, uris=(trace,)
        ) as spark,
    ):
        progress.watch(spark)
        result = run_report(trace, out, spark)
    if json:
        tables = {name: table.to_pylist() for name, table in result.tables.items()}
        print_json({"operations": result.operations, "page": str(result.page), "tables": tables})
        return
    from rich.console import Console

    from aiowheel.jobs.report.text import print_report

    console = Console()
    # A pipe has no width: wide enough that no name is cut.
    print_report(result.tables, console if console.is_terminal else Console(width=_PIPE_WIDTH))
    print(f"page  {printable(result.page)}")
