"""`aiowheel tune`: the cheapest tick and wheel size for a recorded load. Rank 5."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aiowheel._outputs import whole_folder
from aiowheel.cli._duration import duration
from aiowheel.cli._job_output import print_json, print_lines, print_table
from aiowheel.cli._options import Json, Trace, named_as_options, number, path_of
from aiowheel.cli._session import Conf, Master, Verbose, job_session
from aiowheel.errors import MissingExtraError

if TYPE_CHECKING:
    from aiowheel.jobs.wheels.tune import Tuning

_MOST_ROWS = 12


def tune(
    trace: Trace,
    *,
    max_lateness: Annotated[float, duration(help="Maximum delay that the wheel may add.")] = 0.01,
    tick: Annotated[
        list[float] | None,
        duration(show_default="by the bound", help="Tick to try; may be repeated."),
    ] = None,
    wheel_size: Annotated[
        list[int] | None,
        number(show_default="16 to 4096", help="Buckets per level; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder for the table and the page.", parser=path_of),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Find the cheapest wheel for a recorded load, within a bound of lateness.

    \b
    Example:
      aiowheel tune trace/ --max-lateness 0.01 --out tuning/
      aiowheel tune trace/ --tick 0.001 --tick 0.01 --wheel-size 64 --wheel-size 512
    """
    try:
        from aiowheel.jobs.report.job import read_trace_frame
        from aiowheel.jobs.report.origin import origin_of
        from aiowheel.jobs.wheels.tune import WHEEL_SIZES, Tuning, candidates_of
        from aiowheel.jobs.wheels.tune import tune as weighed
    except ImportError as error:
        raise MissingExtraError("spark") from error

    sizes = wheel_size or WHEEL_SIZES
    with named_as_options("max lateness", "tick", "wheel size"):
        candidates_of(max_lateness, tick, sizes)  # a wrong value is refused before Spark starts
    with job_session("tune", trace, out, master=master, conf=conf, verbose=verbose) as spark:
        candidates = weighed(
            read_trace_frame(trace, spark),
            max_lateness=max_lateness,
            ticks=tick,
            wheel_sizes=sizes,
        )
        tuning = Tuning.of(candidates.toArrow())
    origin = origin_of(trace)
    page = None if out is None else _save(tuning, round(max_lateness * 1e9), origin, out)
    _print(tuning, origin, page, as_json=json)


def _save(tuning: "Tuning", bound_ns: int, origin: Mapping[str, str], out: Path) -> Path:
    from aiowheel.jobs.report.job import write_table
    from aiowheel.jobs.report.tune_page import write_page

    with whole_folder(out) as folder:
        write_table(tuning.candidates, folder / "candidates.parquet")
        page = write_page(tuning, bound_ns, origin, folder / "tune.html")
    return out / page.name


def _print(
    tuning: "Tuning", origin: Mapping[str, str], page: Path | None, *, as_json: bool
) -> None:
    from aiowheel.jobs.report.tune_page import COLUMNS, OF_A_CORE, TOO_SHORT, covers_enough

    rows = tuning.candidates.to_pylist()
    if as_json:
        print_json(
            {
                "line": tuning.line,
                "operations": tuning.operations,
                "origin": dict(origin),
                "candidates": rows,
                "page": None if page is None else str(page),
            }
        )
        return
    shown = [[cell(row) for _, cell in COLUMNS] for row in rows[:_MOST_ROWS]]
    print_table([name for name, _ in COLUMNS], shown)
    if len(rows) > _MOST_ROWS:
        print(f"and {len(rows) - _MOST_ROWS} more; --json prints all")
    print(OF_A_CORE if covers_enough(rows[0]) else TOO_SHORT)
    lines = {**origin, "operations": f"{tuning.operations:,}", "paste": tuning.line}
    print_lines((lines if page is None else lines | {"page": str(page)}).items())
