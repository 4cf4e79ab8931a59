"""The page of the tuning job: the line to paste, and the table behind it. Rank 5."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aiowheel.jobs.report.charts import line_chart
from aiowheel.jobs.report.html import Page
from aiowheel.jobs.report.spans import mean_lateness_text, span_text
from aiowheel.jobs.wheels.tune import ARM_NS, CASCADE_NS, WAKE_UP_NS, Tuning

Row = dict[str, Any]
#: The explanation of the column "of a core".
OF_A_CORE = (
    "The column 'of a core' is the CPU time of the wheel in percent of the time that the trace "
    "covers. The difference of two rows is the saving of one wheel against the other."
)
_LEAST_SPAN_NS = 10**9
#: The remark on a trace for which `covers_enough` is false.
TOO_SHORT = (
    "The trace covers less than a second: too little for a share of a core, and for a choice of a "
    "wheel that lasts."
)


def covers_enough(row: Row) -> bool:
    """Return whether the trace covers a second, so that a share of a core means something."""
    return bool(row["span_ns"] >= _LEAST_SPAN_NS)


def core_text(row: Row) -> str:
    """Return the CPU time of a wheel in percent of the duration of the trace."""
    if not covers_enough(row):
        return "-"
    return f"{100 * row['cost_ns'] * row['operations'] / row['span_ns']:.3g} %"


#: Each column's heading, and the function that formats its cell.
COLUMNS: Sequence[tuple[str, Callable[[Row], str]]] = (
    ("tick", lambda row: span_text(row["tick_ns"])),
    ("wheel size", lambda row: f"{row['wheel_size']:,}"),
    ("cost", lambda row: f"{row['cost_ns']:,.0f} ns"),
    ("of a core", core_text),
    ("late, mean", mean_lateness_text),
    ("late, most", lambda row: span_text(row["late_max_ns"])),
    ("timed out", lambda row: f"{row['expired']:,}"),
    ("cascades", lambda row: f"{row['cascaded']:,}"),
    ("wake-ups", lambda row: f"{row['wake_ups']:,}"),
    ("buckets", lambda row: f"{row['levels'] * row['wheel_size']:,}"),
    ("within the bound", lambda row: "yes" if row["allowed"] else "no"),
)


def write_page(tuning: Tuning, max_lateness_ns: int, origin: Mapping[str, str], path: Path) -> Path:
    """Write the result of the tuning job to *path*."""
    rows: list[Row] = tuning.candidates.to_pylist()
    best = tuning.best
    page = Page(
        "Tick and wheel size for this trace",
        f"{tuning.operations:,} recorded operations, on {len(rows)} wheels. The bound: a wheel "
        f"delays a timeout by at most {span_text(max_lateness_ns)}.",
    )
    page.origin(origin)
    page.cards(
        [
            ("tick", span_text(best["tick_ns"])),
            ("wheel size", f"{best['wheel_size']:,}"),
            ("cost per operation", f"{best['cost_ns']:,.0f} ns"),
            ("of a core", core_text(best)),
            ("late, mean", mean_lateness_text(best)),
        ]
    )
    page.section("The line to paste")
    page.code(tuning.line)
    page.section(
        "Cost an operation, by tick",
        f"A timeout that is armed counts {ARM_NS} ns, one that cascades {CASCADE_NS} ns, a wake-up "
        f"of the event loop {span_text(WAKE_UP_NS)}. A loop that is busy anyway wakes up cheaper.",
    )
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in sorted(rows, key=lambda row: (row["wheel_size"], row["tick_ns"])):
        name = f"wheel size {row['wheel_size']:,}"
        lines.setdefault(name, []).append((row["tick_ns"], row["cost_ns"]))
    chart = line_chart(
        lines,
        x_label="tick",
        y_label="CPU per operation",
        x_text=lambda tick: span_text(round(tick)),
        y_text=lambda cost: span_text(round(cost)),
        log_x=True,
    )
    page.figure(chart, "Hover a point for its value.")
    page.section(
        "Why",
        "The best first: within the bound, and of those within 2 % of the lowest cost the one "
        f"with the fewest buckets. {OF_A_CORE if covers_enough(best) else TOO_SHORT}",
    )
    page.table(
        [name for name, _ in COLUMNS],
        [[cell(row) for _, cell in COLUMNS] for row in rows],
        best=0,
    )
    return page.save(path)
