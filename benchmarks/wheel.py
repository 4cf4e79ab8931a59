"""The program `aiowheel bench wheel`: the passive wheel and the loops' own timers."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from aiowheel._build import accelerated
from benchmarks._loops import loops_here
from benchmarks._report import Report, Table, Verdict
from benchmarks._rounds import Series, alternate
from benchmarks._side import Side

Measured = Mapping[str, Series]
KEPT_PERCENT = 5  # tolerance for allocator arenas that other objects keep in use


@dataclass(frozen=True, slots=True)
class WheelPlan:
    """The numbers of pending entries, of timed operations in a round, and of entries in memory.

    Few entries in memory would measure arenas and pages instead of entries.
    """

    sizes: tuple[int, ...] = (1_000, 1_000_000)
    operations: int = 200_000
    rounds: int = 7
    remembered: int = 1_000_000


QUICK = WheelPlan(sizes=(1_000, 10_000), operations=5_000, rounds=3, remembered=100_000)


def run(plan: WheelPlan) -> Report:
    """Measure everything."""
    report = Report("wheel", asdict(plan))
    by_size = {size: _churn(report, plan, size) for size in plan.sizes}
    small, large = plan.sizes[0], plan.sizes[-1]
    _expire(report, plan.rounds, large)
    remembered = _memory(report, plan.remembered)
    _judge(report, by_size[small], by_size[large], remembered)
    return report


def _passive_sides(workload: str, **amount: int) -> list[Side]:
    """Return the sides of the wheels, which get the arguments in *amount*."""
    wheel, heap = {"kind": "wheel", **amount}, {"kind": "heap", **amount}
    sides = [Side("aiowheel", workload, wheel), Side("HeapWheel", workload, heap)]
    if accelerated():
        sides.insert(1, Side("aiowheel pure", workload, wheel, pure=True))
    return sides


def _churn(report: Report, plan: WheelPlan, size: int) -> Measured:
    amount = {"pending": size, "operations": plan.operations}
    sides = _passive_sides("passive:churn", **amount)
    sides += [
        Side(loop, "timers:churn", {"api": "loop", **amount}, loop=loop) for loop in loops_here()
    ]
    measured = alternate(sides, plan.rounds)
    report.add(f"churn, {size} pending", measured)
    rows = [
        [name]
        + [
            f"{value:,.0f}"
            for figure in ("pair", "replace")
            for value in (one.net(figure), one.minimum(figure), one.median(f"{figure}_empty"))
        ]
        for name, one in measured.items()
    ]
    report.tables.append(
        Table(
            f"{size:,} pending (CPU ns, harness taken off; least: best round, harness included)",
            ("", "schedule+cancel", "least", "harness", "replace a random one", "least", "harness"),
            rows,
        )
    )
    return measured


def _expire(report: Report, rounds: int, size: int) -> None:
    measured = alternate(_passive_sides("passive:expire", pending=size), rounds)
    report.add("expire", measured)
    rows = [
        [name, *(f"{one.median(figure):,.0f}" for figure in ("add", "expire"))]
        for name, one in measured.items()
    ]
    report.tables.append(
        Table(
            f"Fill with {size:,}, then expire all (ns each, harness included)",
            ("", "add", "expire"),
            rows,
        )
    )


def _memory(report: Report, size: int) -> Measured:
    # One round: resident memory does not vary, and a second round would start with a warm
    # allocator.
    measured = alternate(_passive_sides("passive:memory", pending=size), 1)
    report.add("memory", measured)
    figures = ("bytes_each", "kept_percent_after_cancelling", "kept_percent_after_dropping")
    rows = [
        [name, *(f"{one.median(figure):,.1f}" for figure in figures)]
        for name, one in measured.items()
    ]
    report.tables.append(
        Table(
            f"Memory of {size:,} entries without payload (resident, one round)",
            ("", "bytes each", "% kept, all cancelled", "% kept, wheel dropped"),
            rows,
        )
    )
    return measured


def _judge(report: Report, small: Measured, large: Measured, remembered: Measured) -> None:
    ours = large["aiowheel"].net("pair")
    report.verdicts.append(
        Verdict(
            "schedule+cancel, largest size against smallest",
            ours / small["aiowheel"].net("pair"),
            1.5,
        )
    )
    wanted = {"asyncio": 15, "uvloop": 5}
    report.verdicts += [
        Verdict(
            f"times faster than {loop}, largest size",
            large[loop].net("pair") / ours,
            times,
            at_least=True,
        )
        for loop, times in wanted.items()
        if loop in large
    ]
    memory = remembered["aiowheel"]
    report.verdicts += [
        Verdict("bytes per entry", memory.median("bytes_each"), 120),
        Verdict(
            "% of memory kept after cancelling all",
            memory.median("kept_percent_after_cancelling"),
            KEPT_PERCENT,
        ),
        Verdict(
            "% of memory kept after dropping the wheel",
            memory.median("kept_percent_after_dropping"),
            KEPT_PERCENT,
        ),
    ]
