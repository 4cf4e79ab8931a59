"""The program `aiowheel bench programs`: other people's programs on our loops. Rank 5."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from importlib.util import find_spec

from aiowheel.bench._loops import WHEEL, loops_here
from aiowheel.bench._postgres import PostgresMissingError, postgres_server
from aiowheel.bench._redis import RedisMissingError, redis_server
from aiowheel.bench._report import Report, Table, Verdict
from aiowheel.bench._rounds import Series, alternate
from aiowheel.bench._side import Side

WITHOUT = ", no timeouts"
OURS, OWN = f"{WHEEL}uvloop", "uvloop"
#: Of uvloop's CPU time: no program may cost more than this, and some cost less than this.
SLOWER, FASTER, FASTER_PROGRAMS = 1.02, 1 / 1.1, 3


@dataclass(frozen=True, slots=True)
class ProgramsPlan:
    """How much to measure.

    Attributes:
        requests: In a round.
        at_once: Clients, or connections of the pool.
        standing: Pending timers of others, in the second table of each program.
        connections: Websockets that are kept alive.
        interval: Seconds between two pings of one websocket.
        seconds: What a round of websockets lasts.
        messages: A second, that websockets echo besides.
        rounds: Of every side.
        only: The one program to run; empty for all.
    """

    requests: int = 3_000
    at_once: int = 20
    standing: int = 100_000
    connections: int = 10_000
    interval: float = 5.0
    seconds: float = 5.0
    messages: float = 500.0
    rounds: int = 5
    only: str = ""


QUICK = ProgramsPlan(
    requests=100,
    at_once=5,
    standing=1_000,
    connections=20,
    interval=0.1,
    seconds=0.3,
    messages=50.0,
    rounds=1,
)


@dataclass(frozen=True, slots=True)
class Program:
    """One program.

    Attributes:
        what: It does so many of these.
        workload: As in `Side`.
        modules: Which must be installed.
        can_do_without: It runs without timeouts as well, which shows what they cost.
        is_crowd: It brings its own crowd of timers: there is one table of it.
    """

    what: str
    workload: str
    modules: tuple[str, ...]
    can_do_without: bool = True
    is_crowd: bool = False


PROGRAMS = {
    "aiohttp": Program("echoes", "programs:aiohttp_echo", ("aiohttp",)),
    "uvicorn": Program(
        "answers of FastAPI", "programs:fastapi_get", ("uvicorn", "fastapi"), can_do_without=False
    ),
    "asyncpg": Program("selects", "programs:asyncpg_select", ("asyncpg",)),
    "redis": Program("gets", "programs:redis_get", ("redis",)),
    "websockets": Program(
        "pings and echoes",
        "programs:websockets_pings",
        ("websockets",),
        can_do_without=False,
        is_crowd=True,
    ),
}


def run(plan: ProgramsPlan) -> Report:
    """Measure every program that is here, on every loop and on that loop with our timers."""
    report = Report("programs", asdict(plan))
    costs: dict[tuple[str, int], float] = {}
    for name, program in PROGRAMS.items():
        if plan.only not in {"", name}:
            continue
        absent = [module for module in program.modules if not find_spec(module)]
        if absent:
            _leave_out(report, name, f"{absent[0]} is not installed")
            continue
        with ExitStack() as stack:
            try:
                where = {key: stack.enter_context(server()) for key, server in _servers(name)}
            except (PostgresMissingError, RedisMissingError) as missing:
                _leave_out(report, name, str(missing))
                continue
            costs |= _measure(report, plan, name, where)
    judge(report, costs)
    return report


def _servers(program: str) -> list[tuple[str, Callable[[], AbstractContextManager[str]]]]:
    """What the program talks to, by the argument of the workload that has its address."""
    if program == "asyncpg":
        return [("address", postgres_server)]
    return [("address", redis_server)] if program == "redis" else []


def _measure(
    report: Report, plan: ProgramsPlan, name: str, where: Mapping[str, str]
) -> dict[tuple[str, int], float]:
    """Run one program; its CPU time, times uvloop's, by name and number of other timers."""
    program = PROGRAMS[name]
    costs: dict[tuple[str, int], float] = {}
    for standing in (0,) if program.is_crowd else (0, plan.standing):
        measured = alternate(_sides(plan, name, standing, where), plan.rounds)
        report.add(f"{name}, {standing}", measured)
        report.tables.append(_table(_title(plan, name, standing, measured), measured))
        if OURS in measured and OWN in measured:
            costs[name, standing] = measured[OURS].times(measured[OWN], "cpu_us")
    return costs


def _sides(plan: ProgramsPlan, name: str, standing: int, where: Mapping[str, str]) -> list[Side]:
    program = PROGRAMS[name]
    arguments: dict[str, object] = {"standing": standing, **where}
    if program.is_crowd:
        arguments |= {"connections": plan.connections, "interval": plan.interval}
        arguments |= {"rate": plan.messages, "seconds": plan.seconds}
    else:
        arguments |= {"requests": plan.requests, "at_once": plan.at_once}
    sides: list[Side] = []
    for base in loops_here():
        for loop in (base, f"{WHEEL}{base}"):
            if not program.can_do_without:
                sides.append(Side(loop, program.workload, arguments, loop))
                continue
            for timeouts in (True, False):
                side = loop if timeouts else f"{loop}{WITHOUT}"
                given = {"timeouts": timeouts, **arguments}
                sides.append(Side(side, program.workload, given, loop))
    return sides


def _title(plan: ProgramsPlan, name: str, standing: int, measured: Mapping[str, Series]) -> str:
    program = PROGRAMS[name]
    if program.is_crowd:
        possible = next(iter(measured.values())).minimum("connections")
        how = f"{program.what} on {possible:,.0f} connections, a ping each {plan.interval:g} s"
        if possible < plan.connections:
            how += f" ({plan.connections:,} were wanted: see ulimit -n)"
    else:
        how = f"{plan.requests:,} {program.what} by {plan.at_once}"
        if program.can_do_without:
            how += ", with timeouts and without"
        how += f", {standing:,} other timers pending"
    return f"{name}: {how} (medians of {plan.rounds})"


def _table(title: str, measured: Mapping[str, Series]) -> Table:
    rows: list[list[str]] = []
    for name, series in measured.items():
        if name.endswith(WITHOUT):
            continue
        rate, p99, cost = (series.median(each) for each in ("per_second", "p99_ms", "cpu_us"))
        row = [name, f"{rate:,.0f}", f"{p99:,.2f}", f"{cost:,.1f}"]
        without = measured.get(f"{name}{WITHOUT}")
        if without is not None:
            bare = without.median("cpu_us")
            row += [f"{bare:,.1f}", f"{cost - bare:,.1f}"]
        rows.append(row)
    columns = ["", "a second", "p99 ms", "CPU us each", "without timeouts", "timeouts"]
    return Table(title, columns[: len(rows[0])], rows)


def judge(report: Report, costs: Mapping[tuple[str, int], float]) -> None:
    """Judge CPU time a request on our loop above uvloop, as a share of uvloop's.

    Args:
        report: Gets the verdicts.
        costs: That share by program and number of other timers pending.
    """
    for (name, standing), cost in costs.items():
        what = f"{name}: CPU a request, times uvloop's, {standing:,} other timers pending"
        report.verdicts.append(Verdict(what, cost, SLOWER))
    for standing in sorted({standing for _, standing in costs}):
        at_size = {name: cost for (name, size), cost in costs.items() if size in {0, standing}}
        faster = sum(cost <= FASTER for cost in at_size.values())
        what = f"programs at least 10 % faster than on uvloop, {standing:,} other timers pending"
        report.verdicts.append(Verdict(what, faster, FASTER_PROGRAMS, at_least=True))


def _leave_out(report: Report, program: str, why: str) -> None:
    report.tables.append(Table(f"{program}: not measured, for {why}", ("",), ()))
