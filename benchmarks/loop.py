"""The program `aiowheel bench loop`: the wheel loops against their base loops."""

from collections.abc import Callable
from dataclasses import asdict, dataclass

from aiowheel._build import accelerated
from benchmarks._compare import (
    OURS,
    OWN,
    PURE,
    Contest,
    Line,
    contest,
    fire_line,
    judge_firing,
    own_side,
    stall_line,
)
from benchmarks._loops import WHEEL, loops_here
from benchmarks._report import Report, Verdict
from benchmarks._side import Side

_PAIR = {"asyncio": 8.0, "uvloop": 2.5}  # least speed-up over this base loop, at the largest size
_REPLACE = 4.0
_BLOCK = 1.5
_STALL_MS = 5.0


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """The amount of work to measure.

    Attributes:
        sizes: Numbers of pending timers, ascending; bounds apply to the largest.
        operations: Number of timed operations in a round.
        rounds: Number of rounds of every line.
        only: The name of the line to run; empty for all.
        sides: Additional loops to measure, each "module:factory".
    """

    sizes: tuple[int, ...] = (1_000, 100_000, 1_000_000)
    operations: int = 100_000
    rounds: int = 7
    only: str = ""
    sides: tuple[str, ...] = ()


QUICK = LoopPlan(sizes=(1_000, 10_000), operations=2_000, rounds=3)


def run(plan: LoopPlan) -> Report:
    """Measure every line, or only the selected one."""
    report = Report("loop", asdict(plan))
    for name, measure in LINES.items():
        if plan.only in {"", name}:
            measure(report, plan)
    return report


def _sides(line: Line, loop: str) -> list[Side]:
    """Return the sides of the wheel loop on *loop* and of *loop* itself; both have the same calls.

    Wheel loops exist only on asyncio's and uvloop's loops.
    """
    if loop not in loops_here():
        return [own_side(line, loop)]
    arguments = {"api": "loop", **line.arguments}
    sides = [Side(f"{OURS}, {loop}", line.workload, arguments, WHEEL + loop)]
    if accelerated():
        sides.append(Side(f"{PURE}, {loop}", line.workload, arguments, WHEEL + loop, pure=True))
    return [*sides, own_side(line, loop)]


def _ratio(found: Contest, ours: str, own: str, figure: str) -> float:
    return found[f"{OWN}, {own}"].net(figure) / found[f"{OURS}, {ours}"].net(figure)


def churn(report: Report, plan: LoopPlan) -> None:
    """Measure `loop.call_later` and `cancel`: of the new timer, and of a random one."""
    for size in plan.sizes:
        line = Line(
            "churn",
            f"loop.call_later, {size:,} pending (CPU ns, harness taken off; least: best round)",
            "timers:churn",
            {"pending": size, "operations": plan.operations},
            {"call_later+cancel": "pair", "replace a random one": "replace"},
        )
        found = contest(report, line, plan.rounds, plan.sides, _sides)
        if size == plan.sizes[-1]:
            _judge_churn(report, found, f"at {size:,} pending")


def _judge_churn(report: Report, found: Contest, where: str) -> None:
    for ours in loops_here():
        for own in loops_here():
            faster = f"on our loop above {ours}, times faster than {own}'s {where}"
            pair, replace = (_ratio(found, ours, own, each) for each in ("pair", "replace"))
            report.verdicts += [
                Verdict(f"call_later+cancel {faster}", pair, _PAIR[own], at_least=True),
                Verdict(f"replace a random one {faster}", replace, _REPLACE, at_least=True),
            ]


def timeout(report: Report, plan: LoopPlan) -> None:
    """Measure `asyncio.timeout`, unchanged."""
    for size in (0, plan.sizes[-1]):
        line = Line(
            "timeout",
            f"async with asyncio.timeout(30): pass, {size:,} pending (CPU ns)",
            "timers:block",
            {"pending": size, "operations": plan.operations},
            {"enter and leave": "block"},
        )
        found = contest(report, line, plan.rounds, plan.sides, _sides)
        # Without pending timers, nine tenths of the time on Python 3.11 are asyncio's own code.
        if size and "uvloop" in loops_here():
            what = f"asyncio.timeout block, times faster than on uvloop, {size:,} pending"
            ratio = _ratio(found, "uvloop", "uvloop", "block")
            report.verdicts.append(Verdict(what, ratio, _BLOCK, at_least=True))


def stall(report: Report, plan: LoopPlan) -> None:
    """Measure the longest turn of the loop while timers are replaced."""
    replaced = max(plan.sizes[-1] // 5, 1_000)
    found = contest(report, stall_line(plan.sizes[-1], replaced), plan.rounds, plan.sides, _sides)
    for loop in loops_here():
        worst = found[f"{OURS}, {loop}"].maximum("longest_cpu_ms")
        what = f"worst stall of all rounds on our loop above {loop}, CPU ms"
        report.verdicts.append(Verdict(what, worst, _STALL_MS))


def fire(report: Report, plan: LoopPlan) -> None:
    """Measure timers that all fire, the best case of the loops' own timers."""
    for size in (1, 100, 1_000):
        found = contest(report, fire_line(size, plan.operations), plan.rounds, plan.sides, _sides)
        judge_firing(report, found, size)


LINES: dict[str, Callable[[Report, LoopPlan], None]] = {
    "churn": churn,
    "timeout": timeout,
    "stall": stall,
    "fire": fire,
}
