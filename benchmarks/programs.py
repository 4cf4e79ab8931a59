"""The program `aiowheel bench programs`: third-party programs on the wheel loops."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from importlib.util import find_spec

from benchmarks._loops import WHEEL, loops_here
from benchmarks._postgres import PostgresMissingError, postgres_server
from benchmarks._redis import RedisMissingError, redis_server
from benchmarks._report import Report, Table, Verdict
from benchmarks._rounds import Series, alternate
from benchmarks._side import Side

WITHOUT = ", no timeouts"
OURS, OWN = f"{WHEEL}uvloop", "uvloop"
#: Shares of uvloop's CPU time: the maximum for every program, the target, and the number of
#: programs that must reach the target.
SLOWER, FASTER, FASTER_PROGRAMS = 1.02, 1 / 1.1, 3


@dataclass(frozen=True, slots=True)
class ProgramsPlan:
    """The amount of work to measure.

    Attributes:
        requests: Number of requests in a round.
        at_once: Number of concurrent clients, or connections of the pool.
        standing: Number of other pending timers, in the second table of each program.
        connections: Number of websockets that are kept alive.
        interval: Seconds between two pings of one websocket.
        seconds: Duration of a round of websockets.
        messages: Messages per second that websockets echo in addition.
        rounds: Number of rounds of every side.
        only: The name of the program to run; empty for all.
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
    """One third-party program.

    Attributes:
        what: The unit of its work.
        workload: As in `Side`.
        modules: The modules that must be installed.
        can_do_without: Whether it is also measured without timeouts, which shows their cost.
        is_crowd: Whether it creates many timers itself, so that one table suffices.
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
    """Measure every installed program, on every loop and on that loop with aiowheel's timers."""
    report = Report("programs", asdict(plan))
    costs: dict[tuple[str, int], float] = {}
    for name, program in PROGRAMS.items():
        if plan.only not in {"", name}:
            continue
        absent = [module for module in program.modules if not find_spec(module)]
        if absent:
            report.leave_out(name, f"{absent[0]} is not installed")
            continue
        with ExitStack() as stack:
            try:
                where = {key: stack.enter_context(server()) for key, server in _servers(name)}
            except (PostgresMissingError, RedisMissingError) as missing:
                report.leave_out(name, str(missing))
                continue
            costs |= _measure(report, plan, name, where)
    judge(report, costs)
    return report


def _servers(program: str) -> list[tuple[str, Callable[[], AbstractContextManager[str]]]]:
    """Return the servers of the program, by the workload argument that takes the address."""
    if program == "asyncpg":
        return [("address", postgres_server)]
    return [("address", redis_server)] if program == "redis" else []


def _measure(
    report: Report, plan: ProgramsPlan, name: str, where: Mapping[str, str]
) -> dict[tuple[str, int], float]:
    """Run one program; return CPU time as a multiple of uvloop's, by name and other timers."""
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
    columns = ["", "per second", "p99 ms", "CPU us each", "without timeouts", "timeouts"]
    return Table(title, columns[: len(rows[0])], rows)


def judge(report: Report, costs: Mapping[tuple[str, int], float]) -> None:
    """Judge CPU time per request on the wheel loop over uvloop, as a multiple of uvloop's.

    Args:
        report: Receives the verdicts.
        costs: The multiple, by program and number of other pending timers.
    """
    for (name, standing), cost in costs.items():
        what = f"{name}: CPU per request, times uvloop's, {standing:,} other timers pending"
        report.verdicts.append(Verdict(what, cost, SLOWER))
    for standing in sorted({standing for _, standing in costs}):
        at_size = {name: cost for (name, size), cost in costs.items() if size in {0, standing}}
        faster = sum(cost <= FASTER for cost in at_size.values())
        what = f"programs at least 10 % faster than on uvloop, {standing:,} other timers pending"
        report.verdicts.append(Verdict(what, faster, FASTER_PROGRAMS, at_least=True))
