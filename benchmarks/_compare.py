"""Comparison with the loops' own timers, for `aiowheel bench timer` and `loop`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aiowheel._build import accelerated
from benchmarks._loops import KEEPS_CANCELLED, loops_here, other_loops
from benchmarks._report import Report, Table, Verdict
from benchmarks._rounds import Series, alternate
from benchmarks._side import Side

OURS, PURE, OWN = "aiowheel", "aiowheel pure", "own"
#: Operations in a round on a loop that keeps cancelled timers.
MOST_CANCELLED = 100_000
#: Bounds of the cost of a firing, as a multiple of uvloop's own, by number of pending timers.
FIRING = {1: 1.2, 100: 1.1}


@dataclass(frozen=True, slots=True)
class Line:
    """One measured line: a workload at one size.

    Attributes:
        name: The name for `--only`.
        title: The title of its table.
        workload: As in `Side`; takes the argument `api`, which is "aiowheel" or "loop".
        arguments: The other arguments.
        columns: Figure by column title; a figure without a harness is shown alone.
        digits: Number of decimals.
        rounds: Replaces the plan's number of rounds.
    """

    name: str
    title: str
    workload: str
    arguments: Mapping[str, object]
    columns: Mapping[str, str]
    digits: int = 0
    rounds: int | None = None


def stall_line(pending: int, replaced: int) -> Line:
    """Return the line for the longest turn of the loop while timers are replaced."""
    return Line(
        "stall",
        f"longest turn of the loop, {pending:,} pending, {replaced:,} replaced a round (ms)",
        "standing:stall",
        {"pending": pending, "replaced": replaced},
        {"wall clock": "longest_ms", "CPU clock": "longest_cpu_ms"},
        digits=2,
    )


def fire_line(pending: int, operations: int) -> Line:
    """Return the line for timers that all fire and are armed again.

    A firing of each pending timer takes 10 ms, so a trial run has few firings.
    """
    each, least = min(operations // 200, 50), min(operations // 100, 200)
    firings = max(pending * 2, min(pending * each, operations), least)
    return Line(
        "fire",
        f"{pending:,} pending that all fire and re-arm (CPU ns per firing, loop included)",
        "firing:fire_all",
        {"pending": pending, "operations": firings},
        {"arm and fire": "fire"},
    )


Contest = Mapping[str, Series]


def judge_firing(report: Report, found: Contest, pending: int) -> None:
    """Compare a firing on uvloop with a firing of uvloop's own timers, at the sizes of `FIRING`."""
    ours, own = found.get(f"{OURS}, uvloop"), found.get(f"{OWN}, uvloop")
    if pending in FIRING and ours is not None and own is not None:
        what = f"firing with {pending} pending that re-arm, times uvloop's own"
        report.verdicts.append(Verdict(what, ours.times(own, "fire"), FIRING[pending]))


def timer_sides(line: Line, loop: str) -> list[Side]:
    """Return the sides of our timer on a loop and of that loop's own timers."""
    ours = {"api": "aiowheel", **line.arguments}
    sides = [Side(f"{OURS}, {loop}", line.workload, ours, loop)]
    if accelerated() and loop in loops_here():
        sides.append(Side(f"{PURE}, {loop}", line.workload, ours, loop, pure=True))
    return [*sides, own_side(line, loop)]


def own_side(line: Line, loop: str) -> Side:
    """Return the side of the loop's own timers.

    A loop that keeps cancelled timers runs fewer operations: a million in a round would fill the
    memory with cancelled timers.
    """
    arguments = {"api": "loop", **line.arguments}
    operations = arguments.get("operations")
    if loop.partition(":")[0] in KEEPS_CANCELLED and isinstance(operations, int):
        arguments["operations"] = min(operations, MOST_CANCELLED)
    return Side(f"{OWN}, {loop}", line.workload, arguments, loop)


def contest(
    report: Report,
    line: Line,
    rounds: int,
    more: Sequence[str] = (),
    sides_on: Callable[[Line, str], list[Side]] = timer_sides,
) -> Contest:
    """Measure one line on every loop; return the series by "contender, loop".

    Args:
        report: Receives the table and the rounds.
        line: The line to measure.
        rounds: Number of rounds of every side, unless the line has its own.
        more: Additional loops to measure, each "module:factory".
        sides_on: Returns the sides on one loop.
    """
    loops = (*loops_here(), *other_loops(), *more)
    sides = [side for loop in loops for side in sides_on(line, loop)]
    measured = alternate(sides, line.rounds or rounds)
    report.add(f"{line.name}: {line.title}", measured)
    rows = [[name, *_cells(line, series)] for name, series in measured.items()]
    columns: list[str] = [""]
    for title, figure in line.columns.items():
        columns += [title]
        if f"{figure}_empty" in next(iter(measured.values())).rounds[0]:
            columns += ["least", "harness"]
    report.tables.append(Table(f"{line.name}: {line.title}", columns, rows))
    return measured


def _cells(line: Line, series: Series) -> list[str]:
    cells: list[str] = []
    for figure in line.columns.values():
        first = series.rounds[0]
        harness = f"{figure}_empty" in first
        if figure not in first:
            cells += ["-"] * 3  # only aiowheel's timers have touch
        elif harness:
            values = (series.net(figure), series.minimum(figure), series.median(f"{figure}_empty"))
            cells += [f"{value:,.{line.digits}f}" for value in values]
        else:
            cells.append(f"{series.median(figure):,.{line.digits}f}")
    return cells
