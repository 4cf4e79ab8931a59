"""The program `aiowheel bench programs`: other people's programs on our loops. Rank 5."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.util import find_spec

from aiowheel.bench._loops import WHEEL, loops_here
from aiowheel.bench._postgres import PostgresMissingError, postgres_server
from aiowheel.bench._report import Report, Table
from aiowheel.bench._rounds import Series, alternate
from aiowheel.bench._side import Side

WITHOUT = ", no timeouts"


@dataclass(frozen=True, slots=True)
class ProgramsPlan:
    """How much to measure.

    Attributes:
        requests: In a round.
        at_once: Clients, or connections of the pool.
        standing: Pending timers of others, in the second table of each program.
        rounds: Of every side.
    """

    requests: int = 3_000
    at_once: int = 20
    standing: int = 100_000
    rounds: int = 5


QUICK = ProgramsPlan(requests=100, at_once=5, standing=1_000, rounds=1)


def run(plan: ProgramsPlan) -> Report:
    """Measure every program that is here, on every loop and on that loop with our timers."""
    report = Report("programs", asdict(plan))
    if find_spec("aiohttp"):
        _measure(report, plan, "aiohttp", "echoes", "programs:aiohttp_echo", {})
    else:
        _leave_out(report, "aiohttp", "aiohttp is not installed")
    if find_spec("asyncpg"):
        _measure_asyncpg(report, plan)
    else:
        _leave_out(report, "asyncpg", "asyncpg is not installed")
    return report


def _measure_asyncpg(report: Report, plan: ProgramsPlan) -> None:
    with ExitStack() as stack:
        try:
            where = {"address": stack.enter_context(postgres_server())}
        except PostgresMissingError as missing:
            _leave_out(report, "asyncpg", str(missing))
        else:
            _measure(report, plan, "asyncpg", "selects", "programs:asyncpg_select", where)


def _measure(
    report: Report,
    plan: ProgramsPlan,
    program: str,
    what: str,
    workload: str,
    where: Mapping[str, object],
) -> None:
    for standing in (0, plan.standing):
        amount = {"requests": plan.requests, "at_once": plan.at_once, "standing": standing}
        sides = [
            Side(
                loop if timeouts else f"{loop}{WITHOUT}",
                workload,
                {"timeouts": timeouts, **amount, **where},
                loop,
            )
            for base in loops_here()
            for loop in (base, f"{WHEEL}{base}")
            for timeouts in (True, False)
        ]
        measured = alternate(sides, plan.rounds)
        title = (
            f"{program}: {plan.requests:,} {what} by {plan.at_once}, with timeouts and without, "
            f"{standing:,} other timers pending (medians of {plan.rounds})"
        )
        report.add(f"{program}, {standing}", measured)
        report.tables.append(_table(title, measured))


def _table(title: str, measured: Mapping[str, Series]) -> Table:
    rows: list[list[str]] = []
    for name, series in measured.items():
        if name.endswith(WITHOUT):
            continue
        rates = [each.median("per_second") for each in (series, measured[f"{name}{WITHOUT}"])]
        costs = [each.median("cpu_us") for each in (series, measured[f"{name}{WITHOUT}"])]
        figures = (*(f"{rate:,.0f}" for rate in rates), *(f"{cost:,.0f}" for cost in costs))
        rows.append([name, *figures, f"{costs[0] - costs[1]:,.1f}"])
    columns = ("", "a second", "without", "CPU us each", "without", "timers")
    return Table(title, columns, rows)


def _leave_out(report: Report, program: str, why: str) -> None:
    report.tables.append(Table(f"{program}: not measured, for {why}", ("",), ()))
