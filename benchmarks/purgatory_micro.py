"""The program `aiowheel bench purgatory --micro`: single calls of a purgatory."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median

from aiowheel._build import accelerated
from benchmarks._loops import loops_here
from benchmarks._report import Report, Table, Verdict
from benchmarks._rounds import Series, alternate
from benchmarks._side import Side
from benchmarks.workloads.timers import BATCH

CALLBACK = "callback form"
AWAITING_NS = 650  # maximum of awaiting minus (a bare future plus the callback form)
KAFKA_NS = {1: 1_440, 3: 3_950}  # Kafka's figures on a JVM, by number of keys; 100,000 pending


@dataclass(frozen=True, slots=True)
class MicroPlan:
    """The amount of work to measure."""

    sizes: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    operations: int = 100_000
    rounds: int = 7
    remembered: int = 1_000_000
    payloads: int = 10_000


QUICK = MicroPlan(
    sizes=(1_000, 10_000), operations=2_000, rounds=3, remembered=20_000, payloads=200
)


def run(plan: MicroPlan) -> Report:
    """Measure every line."""
    report = Report("purgatory-micro", asdict(plan))
    for size in plan.sizes:
        _check(report, plan, size)
    _awaited(report, plan)
    _advance(report, plan)
    _memory(report, plan)
    return report


def _both_builds(name: str, workload: str, arguments: Mapping[str, object]) -> list[Side]:
    loop = loops_here()[-1]
    sides = [Side(f"aiowheel{name}", workload, arguments, loop)]
    if accelerated():
        sides.append(Side(f"aiowheel pure{name}", workload, arguments, loop, pure=True))
    return sides


def _check(report: Report, plan: MicroPlan, size: int) -> None:
    amount = {"pending": size, "operations": plan.operations}
    sides = [
        side
        for keys in (1, 3)
        for side in _both_builds(f", {keys} key(s)", "operations:check", {"keys": keys, **amount})
    ]
    sides += [
        Side(f"{loop}'s call_later", "timers:churn", {"api": "loop", **amount}, loop)
        for loop in loops_here()
    ]
    measured = alternate(sides, plan.rounds)
    report.add(f"check, {size} pending", measured)
    rows: list[list[str]] = []
    for name, series in measured.items():
        figure = "pair" if "call_later" in name else "check"
        values = (series.net(figure), series.minimum(figure), series.median(f"{figure}_empty"))
        rows.append([name, *(f"{value:,.0f}" for value in values)])
    title = (
        f"{size:,} pending: make, watch and complete by a check; or call_later and cancel (CPU ns)"
    )
    report.tables.append(Table(title, ("", "net", "least", "harness"), rows))
    if size == min(plan.sizes, key=lambda each: abs(each - 100_000)):
        pair = measured[f"{loops_here()[-1]}'s call_later"].net("pair")
        for keys, kafka in KAFKA_NS.items():
            ours = measured[f"aiowheel, {keys} key(s)"].net("check")
            where = f"{keys} key(s), {size:,} pending"
            if keys == 1:
                what = f"watch+check against uvloop's call_later+cancel, {where}"
                report.verdicts.append(Verdict(what, ours / pair, 2.5))
            report.verdicts.append(Verdict(f"watch+check, ns, {where}", ours, kafka))


def _awaited(report: Report, plan: MicroPlan) -> None:
    shapes: dict[str, tuple[str, dict[str, object]]] = {
        "one after the other": ("operations:round_trip", {}),
        "100 at a time, a task each": ("operations:awaited", {"standing": False}),
        "100 standing tasks": ("operations:awaited", {"standing": True}),
    }
    rows: list[list[str]] = []
    for how, (workload, shape) in shapes.items():
        shape["operations"] = plan.operations
        sides = _both_builds("", workload, {"kind": "watch", **shape})
        sides.append(Side("bare future", workload, {"kind": "future", **shape}, loops_here()[-1]))
        parts = {"keys": 1, "pending": BATCH, "operations": plan.operations}
        sides.append(Side(CALLBACK, "operations:check", parts, loops_here()[-1]))
        measured = alternate(sides, plan.rounds)
        report.add(f"awaited, {how}", measured)
        base = measured["bare future"].median("awaited")
        for name, series in measured.items():
            if name == CALLBACK:
                value, least = series.net("check"), series.minimum("check")
            else:
                value, least = series.median("awaited"), series.minimum("awaited")
            rows.append([f"{name}, {how}", f"{value:,.0f}", f"{least:,.0f}", f"{value / base:.2f}"])
        what = f"ns of an awaited watch beyond a bare future and the {CALLBACK}, {how}"
        report.verdicts.append(Verdict(what, awaiting_ns(measured), AWAITING_NS))
    title = f"Awaited by tasks, task and loop included; {CALLBACK}: watch and check alone (CPU ns)"
    report.tables.append(Table(title, ("", "median", "least", "times the bare future"), rows))


def awaiting_ns(measured: Mapping[str, Series]) -> float:
    """Return the cost of awaiting beyond a bare future and the callback form, as a median."""
    awaited, future, callback = (
        measured[name].rounds for name in ("aiowheel", "bare future", CALLBACK)
    )
    return median(
        one["awaited"] - other["awaited"] - (parts["check"] - parts["check_empty"])
        for one, other, parts in zip(awaited, future, callback, strict=True)
    )


def _advance(report: Report, plan: MicroPlan) -> None:
    few, many = 100, plan.sizes[min(1, len(plan.sizes) - 1)]
    sides = [
        side
        for waiters in (few, many)
        for side in _both_builds(
            f", {waiters:,} waiters",
            "operations:advance",
            {"waiters": waiters, "operations": 1_000},
        )
    ]
    measured = alternate(sides, plan.rounds)
    report.add("advance", measured)
    rows = [
        [name, f"{series.median('advance'):,.0f}", f"{series.median('scan'):,.0f}"]
        for name, series in measured.items()
    ]
    title = "One of so many waiters of one key completes per call (CPU ns a call)"
    report.tables.append(Table(title, ("", "advance", "check_and_complete (scan)"), rows))
    ratio = measured[f"aiowheel, {many:,} waiters"].median("advance") / measured[
        f"aiowheel, {few:,} waiters"
    ].median("advance")
    report.verdicts.append(Verdict(f"advance with {many:,} waiters against {few:,}", ratio, 3))


def _memory(report: Report, plan: MicroPlan) -> None:
    measured = alternate(_both_builds("", "operations:memory", {"operations": plan.remembered}), 1)
    report.add("memory", measured)
    figures = ("bytes_each", "kept_percent", "blocks_kept")
    rows = [
        [name, *(f"{series.median(figure):,.1f}" for figure in figures)]
        for name, series in measured.items()
    ]
    title = f"{plan.remembered:,} operations on 3 keys, completed in random order (one round)"
    report.tables.append(Table(title, ("", "bytes each", "% kept", "blocks kept"), rows))
    kept = measured["aiowheel"].median("kept_percent")
    report.verdicts.append(Verdict("% of memory kept after completing all", kept, 2))
    held = alternate(_both_builds("", "operations:payloads", {"operations": plan.payloads}), 1)
    report.add("payloads", held)
    left = held["aiowheel"].maximum("left")
    what = f"payloads of 1 MB left of {plan.payloads:,}, all completed through one key of three"
    report.verdicts.append(Verdict(what, left, 0))
