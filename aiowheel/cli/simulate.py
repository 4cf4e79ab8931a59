"""`aiowheel simulate`: simulates wheels under a random load. Rank 5."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aiowheel._outputs import whole_folder
from aiowheel.cli._duration import checked_ns, duration
from aiowheel.cli._job_output import print_json, print_lines, print_table
from aiowheel.cli._options import Json, named_as_options, number, path_of
from aiowheel.cli._session import Conf, Master, Verbose, job_session
from aiowheel.errors import BadInputError, MissingExtraError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aiowheel.jobs.wheels.fit import Fit
    from aiowheel.jobs.wheels.simulate import Load, SimulateResult, Sweep


def simulate(
    *,
    operations: Annotated[
        float, number(help="Operations per setting; 1e7 is ten million.")
    ] = 1_000_000,
    rate: Annotated[
        list[float] | None,
        number(show_default="40000", help="Arrivals per second; may be repeated."),
    ] = None,
    timeout: Annotated[
        list[float] | None,
        duration(show_default="0.2", help="Timeout of an operation; may be repeated."),
    ] = None,
    tick: Annotated[
        list[float] | None,
        duration(show_default="0.001", help="Tick of the wheel; may be repeated."),
    ] = None,
    wheel_size: Annotated[
        list[int] | None,
        number(show_default="256", help="Buckets per level; may be repeated."),
    ] = None,
    p50: Annotated[
        float | None,
        duration(show_default="0.02", help="Half of the operations complete within this time."),
    ] = None,
    p75: Annotated[
        float | None,
        duration(show_default="0.06", help="Three quarters complete within this time."),
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option(metavar="TRACE", help="Trace whose rate, timeout and waits the load has."),
    ] = None,
    seed: Annotated[int, number(help="Seed of the load.")] = 1,
    shards: Annotated[int, number(help="Number of wheels that share the load.")] = 16,
    partitions: Annotated[
        int | None,
        number(min=1, help="Number of Spark tasks; changes no result."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder for the tables and the page.", parser=path_of),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Run wheels under a random load, in virtual time.

    Each combination of --tick, --wheel-size, --timeout and --rate is one setting. Gaps between
    arrivals are exponential, and times to completion are log-normal. With --fit, some operations
    may never complete.

    \b
    Example:
      aiowheel simulate --operations 1e7 --tick 0.001 --tick 0.01 --wheel-size 20 --wheel-size 256
      aiowheel simulate --fit trace/ --tick 0.001 --tick 0.1 --out simulation/
    """
    try:
        from aiowheel.jobs.wheels.drawn_load import Waits
        from aiowheel.jobs.wheels.simulate import Load, Sweep, run_simulation
    except ImportError as error:
        raise MissingExtraError("spark") from error

    half, most = (0.02 if p50 is None else p50), (0.06 if p75 is None else p75)
    if not 0 < most < 1e9:
        raise BadInputError(f"--p75 must be above 0 and below 1e+09 s, got {most:g}")
    if not 0 < half < most:
        raise BadInputError(f"--p50 must be above 0 and below --p75 ({most:g} s), got {half:g}")
    load = Load(
        operations=_whole(operations),
        waits=Waits.from_quantiles(half, most),
        seed=seed,
        shards=min(shards, _whole(operations)),
    )
    sweep = Sweep(
        load,
        ticks_ns=_nanoseconds("--tick", tick, 0.001),
        wheel_sizes=wheel_size or [256],
        timeouts_ns=_nanoseconds("--timeout", timeout, 0.2),
        rates=rate or [40_000.0],
    )
    with named_as_options("shards", "seed", "wheel size", "rate"):
        sweep.check()
    with job_session("simulate", fit, out, master=master, conf=conf, verbose=verbose) as spark:
        if fit is not None:
            waits = p50 is None and p75 is None
            found = _fit(fit, spark)
            sweep = _fitted(sweep, found, rate=not rate, timeout=not timeout, waits=waits)
        result = run_simulation(sweep, spark, partitions=partitions)
    page = None if out is None else _save(sweep, result, out)
    _print(sweep.load, result, page, as_json=json)


def _fit(folder: str, spark: "SparkSession") -> "Fit":
    from aiowheel.jobs.report.job import read_trace_frame
    from aiowheel.jobs.wheels.fit import fit_load

    return fit_load(read_trace_frame(folder, spark))


def _fitted(sweep: "Sweep", fit: "Fit", *, rate: bool, timeout: bool, waits: bool) -> "Sweep":
    if timeout and not fit.timeout_ns:
        raise BadInputError("no operation of the trace has a timeout: give one with --timeout")
    return replace(
        sweep,
        load=replace(sweep.load, waits=fit.waits) if waits else sweep.load,
        rates=[fit.rate] if rate else sweep.rates,
        timeouts_ns=[fit.timeout_ns] if timeout else sweep.timeouts_ns,
    )


def _whole(operations: float) -> int:
    if operations != operations // 1 or not operations >= 1:
        raise BadInputError(f"--operations must be a whole number, at least 1, got {operations:g}")
    return int(operations)


def _nanoseconds(option: str, seconds: Sequence[float] | None, usual: float) -> list[int]:
    return [checked_ns(option, given) for given in seconds or [usual]]


def _save(sweep: "Sweep", result: "SimulateResult", out: Path) -> Path:
    from aiowheel.jobs.report.job import write_table
    from aiowheel.jobs.report.simulate_page import write_page

    with whole_folder(out) as folder:
        write_table(result.settings, folder / "settings.parquet")
        write_table(result.shards, folder / "shards.parquet")
        page = write_page(sweep, result, folder / "simulate.html")
    return out / page.name


def _print(load: "Load", result: "SimulateResult", page: Path | None, *, as_json: bool) -> None:
    from aiowheel.jobs.report.simulate_page import COLUMNS

    rows = result.settings.to_pylist()
    if as_json:
        print_json(
            {
                "settings": rows,
                "shards": load.shards,
                "seed": load.seed,
                "mu": load.waits.mu,
                "sigma": load.waits.sigma,
                "never": load.waits.never,
                "operations": result.operations,
                "cpu_seconds": result.cpu_seconds,
                "peak_bytes": result.peak_bytes,
                "page": None if page is None else str(page),
            }
        )
        return
    print_table([name for name, _ in COLUMNS], [[cell(row) for _, cell in COLUMNS] for row in rows])
    lines = {
        "simulated": f"{result.operations:,} operations, {load.shards} wheels, seed {load.seed}",
        "never complete": f"{100 * load.waits.never:.4g} %",
        "speed": f"{result.speed:,.0f} operations per CPU second",
        "memory": f"{result.peak_bytes / 1e6:,.0f} MB at most in one worker",
    }
    print_lines((lines if page is None else lines | {"page": str(page)}).items())
