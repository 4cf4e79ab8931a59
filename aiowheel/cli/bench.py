"""`aiowheel bench`: what it costs here, beside what asyncio and uvloop cost here. Rank 5."""

from pathlib import Path
from typing import Annotated

import typer

from aiowheel.bench._report import Report
from aiowheel.errors import BadInputError

Quick = Annotated[bool, typer.Option("--quick", help="Small sizes, to see that it runs.")]
Rounds = Annotated[int | None, typer.Option(min=1, help="Rounds of each side, in turn.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Out = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Where to write all rounds as JSON.")
]

bench = typer.Typer(rich_markup_mode=None, invoke_without_command=True)


@bench.callback()
def every(context: typer.Context) -> None:
    """Measure on this machine, all sides in one run, taking turns.

    Without a subcommand: the quick size of each.

    \b
    Example:
      aiowheel bench
      aiowheel bench wheel --out wheel.json
    """
    if context.invoked_subcommand is None:
        wheel(quick=True)
        timer(quick=True)


@bench.command()
def wheel(
    *, quick: Quick = False, rounds: Rounds = None, out: Out = None, json: Json = False
) -> None:
    """The passive wheel against asyncio's timers, uvloop's, and a heap.

    \b
    Example:
      aiowheel bench wheel --quick
      aiowheel bench wheel --out wheel.json
    """
    from dataclasses import replace

    from aiowheel.bench.wheel import QUICK, WheelPlan, run

    plan = QUICK if quick else WheelPlan()
    _publish(run(replace(plan, rounds=rounds or plan.rounds)), out, as_json=json)


@bench.command()
def timer(
    *,
    only: Annotated[str, typer.Option(metavar="LINE", help="Run one line of the table.")] = "",
    quick: Quick = False,
    rounds: Rounds = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """The running timer against asyncio's timers and uvloop's.

    Lines: churn, timeout, wait_for, memory, stall, lateness, burst, idle, fire.

    \b
    Example:
      aiowheel bench timer --quick
      aiowheel bench timer --only churn --out churn.json
    """
    from dataclasses import replace

    from aiowheel.bench.timer import LINES, QUICK, TimerPlan, run

    if only and only not in LINES:
        raise BadInputError(f"--only must be one of {', '.join(LINES)}, got {only!r}")
    plan = QUICK if quick else TimerPlan()
    _publish(run(replace(plan, rounds=rounds or plan.rounds, only=only)), out, as_json=json)


def _publish(report: Report, out: Path | None, *, as_json: bool) -> None:
    if as_json:
        print(report.as_json(), end="")
    else:
        report.print()
    path = out or Path(f"bench-{report.program}.json")
    report.write(path)
    if not as_json:
        print(f"\nall rounds: {path}")
