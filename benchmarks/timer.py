"""The program `aiowheel bench timer`: the running timer and the loops' own timers."""

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

from benchmarks._compare import (
    OURS,
    OWN,
    Contest,
    Line,
    contest,
    fire_line,
    judge_firing,
    stall_line,
)
from benchmarks._loops import loops_here
from benchmarks._report import Report, Verdict
from benchmarks._rounds import alternate
from benchmarks._side import Side

TICK_MS, BUDGET_MS = 1.0, 5.0  # the defaults of `Timer()`
#: From this number of pending timers on, reading a handle from memory and the clock dominates a
#: touch.
BEYOND_CACHES = 1_000_000
TOUCH_TIMES_CLOCK = 1.25
TURN = 1_000  # of `crowd`: about the number of sockets in one poll of libuv, 1,024


@dataclass(frozen=True, slots=True)
class TimerPlan:
    """The amount of work to measure.

    Attributes:
        sizes: Numbers of pending timers, ascending; lines with one size use the largest.
        operations: Number of timed operations in a round; in `churn` at least the pending ones.
        rounds: Number of rounds of every line except memory, which does not vary.
        firings: Firings per second, for lateness.
        slice_seconds: Duration of lateness and of idling in a round.
        burst: Number of timers due in one tick.
        only: The name of the line to run; empty for all.
        sides: Additional loops to measure, each "module:factory".
    """

    sizes: tuple[int, ...] = (1_000, 100_000, 1_000_000)
    operations: int = 100_000
    rounds: int = 7
    firings: int = 100_000
    slice_seconds: float = 3.0
    burst: int = 200_000
    only: str = ""
    sides: tuple[str, ...] = ()


QUICK = TimerPlan(
    sizes=(1_000, 10_000), operations=2_000, rounds=3, firings=5_000, slice_seconds=0.1, burst=5_000
)


def run(plan: TimerPlan) -> Report:
    """Measure every line, or only the selected one."""
    report = Report("timer", asdict(plan))
    for name, measure in LINES.items():
        if plan.only in {"", name}:
            measure(report, plan)
    return report


def _ratio(found: Contest, loop: str, figure: str, ours: str = "") -> float:
    own = found[f"{OWN}, {loop}"].net(figure)
    return own / found[f"{OURS}, {loop}"].net(ours or figure)


def churn(report: Report, plan: TimerPlan) -> None:
    """Measure arming and cancelling, and touch."""
    pairs: dict[str, list[float]] = {loop: [] for loop in loops_here()}
    for size in plan.sizes:
        line = _churn_line("churn", f"{size:,} pending", plan, {"pending": size})
        found = contest(report, line, plan.rounds, plan.sides)
        for loop in loops_here():
            pairs[loop].append(found[f"{OURS}, {loop}"].net("pair"))
            faster = f"times faster than {loop}'s at {size:,} pending"
            wanted = 8 if loop == "asyncio" else 3
            ratio = _ratio(found, loop, "pair")
            report.verdicts.append(
                Verdict(f"call_later+cancel {faster}", ratio, wanted, at_least=True)
            )
            report.verdicts.append(_touch_verdict(found, loop, size))
    for loop, (smallest, *_, largest) in pairs.items():
        what = f"call_later+cancel on {loop}, {plan.sizes[-1]:,} pending against {plan.sizes[0]:,}"
        report.verdicts.append(Verdict(what, largest / smallest, 1.6))
    side = Side("touch", "standing:allocation", {"pending": 1_000, "operations": 10_000})
    blocks = alternate([side], 3)["touch"].minimum("blocks")
    report.verdicts.append(Verdict("blocks allocated by 10,000 touches", blocks, 2))


def _touch_verdict(found: Contest, loop: str, size: int) -> Verdict:
    """Judge touch against the loop's own timers, or against memory access for large sizes."""
    if size >= BEYOND_CACHES:
        ours = found[f"{OURS}, {loop}"]
        what = f"touch on {loop} at {size:,} pending, times `clock instead of touch`"
        return Verdict(what, ours.net("touch") / ours.net("clock"), TOUCH_TIMES_CLOCK)
    few, many = (12, 40) if loop == "asyncio" else (6, 20)
    what = f"touch times faster than {loop}'s at {size:,} pending"
    wanted = many if size >= 100_000 else few
    return Verdict(what, _ratio(found, loop, "replace", "touch"), wanted, at_least=True)


def _churn_line(name: str, where: str, plan: TimerPlan, arguments: dict[str, int]) -> Line:
    return Line(
        name,
        f"{where} (CPU ns, harness taken off; least: best round with it)",
        "timers:churn",
        # asyncio removes cancelled timers once in as many operations as are pending; at least so
        # many operations include that cost.
        {"operations": max(plan.operations, arguments["pending"]), **arguments},
        {
            "call_later+cancel": "pair",
            "replace a random one": "replace",
            "touch": "touch",
            "clock instead of touch": "clock",
        },
    )


def crowd(report: Report, plan: TimerPlan) -> None:
    """Measure the same as `churn`, in turns of the loop long enough for garbage collections.

    A collection starts when 700 more objects were created than freed; uvloop frees cancelled timers
    only on the next turn. No bound is judged here.
    """
    for size in plan.sizes:
        where = f"{size:,} pending, {TURN:,} operations a turn of the loop"
        line = _churn_line("crowd", where, plan, {"pending": size, "turn": TURN})
        contest(report, line, plan.rounds, plan.sides)


def timeout(report: Report, plan: TimerPlan) -> None:
    """Measure an empty timeout block."""
    wanted = 4.0 if sys.version_info < (3, 12) else 2.5
    for size in (0, plan.sizes[-1]):
        line = Line(
            "timeout",
            f"async with timeout(30): pass, {size:,} pending (CPU ns)",
            "timers:block",
            {"pending": size, "operations": plan.operations},
            {"enter and leave": "block"},
        )
        found = contest(report, line, plan.rounds, plan.sides)
        for loop in loops_here():
            what = f"timeout block, times faster than asyncio.timeout on {loop}, {size:,} pending"
            ratio = _ratio(found, loop, "block")
            report.verdicts.append(Verdict(what, ratio, wanted, at_least=True))


def wait_for(report: Report, plan: TimerPlan) -> None:
    """Measure `wait_for` on a future that completes on the next turn."""
    line = Line(
        "wait_for",
        "wait_for(future done next turn, 30), 1,000 pending (CPU ns; harness: the bare await)",
        "timers:wait_for",
        {"pending": 1_000, "operations": plan.operations},
        {"wait_for": "wait_for"},
    )
    contest(report, line, plan.rounds, plan.sides)


def memory(report: Report, plan: TimerPlan) -> None:
    """Measure the memory of a pending timer."""
    line = Line(
        "memory",
        f"{plan.sizes[-1]:,} pending, a bound method each, handles kept (resident, one round)",
        "standing:memory",
        {"pending": plan.sizes[-1]},
        {"bytes each": "bytes_each", "% kept after cancelling": "kept_percent"},
        rounds=1,
    )
    found = contest(report, line, plan.rounds, plan.sides)
    for loop in loops_here():
        share = found[f"{OURS}, {loop}"].median("bytes_each") / found[f"{OWN}, {loop}"].median(
            "bytes_each"
        )
        bound = 0.5 if loop == "asyncio" else 0.25
        report.verdicts.append(Verdict(f"memory as a share of {loop}'s", share, bound))


def stall(report: Report, plan: TimerPlan) -> None:
    """Measure the longest turn of the loop while timers are replaced."""
    replaced = max(plan.sizes[-1] // 5, 1_000)
    found = contest(report, stall_line(plan.sizes[-1], replaced), plan.rounds, plan.sides)
    for loop in loops_here():
        worst = found[f"{OURS}, {loop}"].maximum("longest_cpu_ms")
        report.verdicts.append(Verdict(f"worst stall of all rounds on {loop}, CPU ms", worst, 5))


def lateness(report: Report, plan: TimerPlan) -> None:
    """Measure the lateness of firings under load."""
    seconds = plan.slice_seconds * plan.rounds
    line = Line(
        "lateness",
        f"{plan.firings:,} firings per second, {seconds:g} s in {plan.rounds} slices (ms; medians)",
        "firing:lateness",
        {"per_second": plan.firings, "seconds": plan.slice_seconds},
        {
            "p50": "p50_ms",
            "p99": "p99_ms",
            "max": "max_ms",
            "earliest": "earliest_ms",
            "CPU ns each": "cpu_ns",
        },
        digits=2,
    )
    found = contest(report, line, plan.rounds, plan.sides)
    for loop in loops_here():
        ours = found[f"{OURS}, {loop}"]
        report.verdicts.append(
            Verdict(f"earliest firing on {loop}, ms", ours.minimum("earliest_ms"), 0, at_least=True)
        )
        if f"{OWN}, uvloop" in found:
            bound = TICK_MS + found[f"{OWN}, uvloop"].median("p99_ms")
            what = f"p99 lateness on {loop}, ms (bound: tick + uvloop's)"
            report.verdicts.append(Verdict(what, ours.median("p99_ms"), bound))


def burst(report: Report, plan: TimerPlan) -> None:
    """Measure many timers due in one tick."""
    line = Line(
        "burst",
        f"{plan.burst:,} timers due in one tick, beside a heartbeat of 1 ms",
        "firing:burst",
        {"timers": plan.burst},
        {
            "longest gap ms": "longest_gap_ms",
            "by CPU clock": "longest_gap_cpu_ms",
            "total ms": "total_ms",
            "CPU ns each": "cpu_ns",
        },
        digits=1,
    )
    found = contest(report, line, plan.rounds, plan.sides)
    for loop in loops_here():
        gap = found[f"{OURS}, {loop}"].median("longest_gap_cpu_ms")
        what = f"longest gap of the heartbeat on {loop}, CPU ms (median of rounds)"
        report.verdicts.append(Verdict(what, gap, 3 * BUDGET_MS))


def idle(report: Report, plan: TimerPlan) -> None:
    """Measure an idle loop with timers due in an hour."""
    for size in (1, plan.sizes[-1]):
        line = Line(
            "idle",
            f"{size:,} pending an hour away",
            "standing:idle",
            {"pending": size, "seconds": plan.slice_seconds},
            {"wake-ups per second": "wakeups_per_second", "CPU ms per second": "cpu_ms_per_second"},
            digits=2,
            rounds=3,
        )
        found = contest(report, line, plan.rounds, plan.sides)
        for loop in loops_here():
            ours = found[f"{OURS}, {loop}"]
            if size == 1:
                wakeups = ours.minimum("wakeups_per_second")
                what = f"wake-ups per second on {loop}, one timer an hour away"
                report.verdicts.append(Verdict(what, wakeups, 0))
            else:
                what = f"idle CPU on {loop}, ms per second, {size:,} timers an hour away"
                report.verdicts.append(Verdict(what, ours.minimum("cpu_ms_per_second"), 1))


def fire(report: Report, plan: TimerPlan) -> None:
    """Measure timers that all fire, the best case of the loops' own timers."""
    for size in (1, 100, 1_000):
        found = contest(report, fire_line(size, plan.operations), plan.rounds, plan.sides)
        judge_firing(report, found, size)


LINES: dict[str, Callable[[Report, TimerPlan], None]] = {
    "churn": churn,
    "crowd": crowd,
    "timeout": timeout,
    "wait_for": wait_for,
    "memory": memory,
    "stall": stall,
    "lateness": lateness,
    "burst": burst,
    "idle": idle,
    "fire": fire,
}
