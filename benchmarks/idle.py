"""The program `aiowheel bench idle`: the cost of closing silent connections."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from benchmarks._descriptors import connections_allowed
from benchmarks._loops import WHEEL, loops_here
from benchmarks._report import Report, Table, Verdict
from benchmarks._rounds import Series, alternate
from benchmarks._side import Side

REARMED = "cancel and call_later"
ON_THE_WHEEL = f"{REARMED}, wheel loop"
#: By name: the design in `silence.DESIGNS`, and the design without timers with which it is
#: compared.
SIDES = {
    "protocol": ("protocol", "protocol"),
    REARMED: (REARMED, "protocol"),
    ON_THE_WHEEL: (REARMED, "protocol"),
    "note and look": ("note and look", "protocol"),
    "handle.touch": ("handle.touch", "protocol"),
    "IdleDetector": ("IdleDetector", "protocol"),
    "LimitedProtocol": ("LimitedProtocol", "protocol"),
    "task": ("task", "task"),
    "task, asyncio.timeout": ("task, asyncio.timeout", "task"),
    "task, asyncio.wait_for": ("task, asyncio.wait_for", "task"),
    "task, aiowheel.timeout": ("task, aiowheel.timeout", "task"),
    "task, idle_guard": ("task, idle_guard", "task"),
}
OURS = ("handle.touch", "IdleDetector", "LimitedProtocol")


@dataclass(frozen=True, slots=True)
class IdlePlan:
    """The amount of work to measure.

    Attributes:
        silent: Number of connections that send no messages.
        talking: Number of connections that send messages.
        rate: Total number of messages per second.
        timeout: Seconds of silence allowed, and duration of the measurement in a round.
        rounds: Number of rounds of every side.
    """

    silent: int = 20_000
    talking: int = 20_000
    rate: int = 10_000
    timeout: float = 8.0
    rounds: int = 3


QUICK = IdlePlan(silent=100, talking=100, rate=1_000, timeout=0.3, rounds=1)


def run(plan: IdlePlan) -> Report:
    """Measure every way to detect silence, on every loop."""
    report = Report("idle", asdict(plan))
    silent, talking = _within_limits(plan)
    for loop in loops_here():
        measured = alternate(
            [_side(name, plan, silent, talking, loop) for name in SIDES], plan.rounds
        )
        report.add(loop, measured)
        report.tables.append(_table(plan, silent, talking, loop, measured))
        _judge(report, loop, measured)
    return report


def _within_limits(plan: IdlePlan) -> tuple[int, int]:
    """Return the numbers of connections, reduced to the limit of the process."""
    share = min(1.0, connections_allowed() / (plan.silent + plan.talking))
    return int(plan.silent * share), int(plan.talking * share)


def _side(name: str, plan: IdlePlan, silent: int, talking: int, loop: str) -> Side:
    arguments = {
        "design": SIDES[name][0],
        "silent": silent,
        "talking": talking,
        "rate": plan.rate,
        "limit": plan.timeout,
    }
    on = f"{WHEEL}{loop}" if name == ON_THE_WHEEL else loop
    return Side(name, "idle:connections", arguments, on)


def _timer_cpu(measured: Mapping[str, Series], name: str) -> float:
    """Return the milliseconds of CPU time that timers add to 10,000 messages."""
    without = measured[SIDES[name][1]].median("cpu_ns")
    return (measured[name].median("cpu_ns") - without) * 10_000 / 1e6


def _table(
    plan: IdlePlan, silent: int, talking: int, loop: str, measured: Mapping[str, Series]
) -> Table:
    title = (
        f"{loop}: {silent:,} silent and {talking:,} talking connections, {plan.rate:,} messages "
        f"per second (CPU ms for 10,000 messages, medians of {plan.rounds})"
    )
    if (silent, talking) != (plan.silent, plan.talking):
        title += f"; {plan.silent:,} and {plan.talking:,} were wanted, more than a process may open"
    rows = [
        [
            name,
            "-" if name in {"protocol", "task"} else f"{_timer_cpu(measured, name):,.1f}",
            f"{series.median('cpu_ns') / 100:,.1f}",
            f"{series.maximum('lost'):,.0f}",
            f"{series.maximum('silenced'):,.0f}",
        ]
        for name, series in measured.items()
    ]
    return Table(title, ("", "timers", "all", "lost", "closed wrongly"), rows)


def _judge(report: Report, loop: str, measured: Mapping[str, Series]) -> None:
    theirs = _timer_cpu(measured, REARMED)
    for name in OURS:
        what = f"timer CPU of {name} as a share of {REARMED}'s on {loop}"
        report.verdicts.append(Verdict(what, _timer_cpu(measured, name) / theirs, 1 / 3))
    wrong = sum(s.maximum("lost") + s.maximum("silenced") for s in measured.values())
    what = f"messages lost and talking connections closed on {loop}"
    report.verdicts.append(Verdict(what, wrong, 0))
