"""The page of a simulation: the cost of each setting and its effect on timeouts. Rank 5."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from aiowheel.jobs.report.charts import line_chart
from aiowheel.jobs.report.html import Page
from aiowheel.jobs.report.spans import mean_lateness_text, span_text
from aiowheel.jobs.wheels.simulate import Load, SimulateResult, Sweep

Row = dict[str, Any]
#: Each column's heading, and the function that formats its cell.
COLUMNS: Sequence[tuple[str, Callable[[Row], str]]] = (
    ("tick", lambda row: span_text(row["tick_ns"])),
    ("wheel size", lambda row: f"{row['wheel_size']:,}"),
    ("timeout", lambda row: span_text(row["timeout_ns"])),
    ("rate", lambda row: f"{row['rate']:,.6g}/s"),
    ("operations", lambda row: f"{row['operations']:,}"),
    ("timed out", lambda row: f"{100 * timeout_share(row):.3f} %"),
    ("late, mean", mean_lateness_text),
    ("late, most", lambda row: span_text(row["late_max_ns"])),
    ("levels", lambda row: str(row["levels"])),
    ("inserts", lambda row: f"{row['inserts']:,}"),
    ("cascades", lambda row: f"{row['cascaded']:,}"),
    ("wake-ups", lambda row: f"{row['wake_ups']:,}"),
    ("peak pending", lambda row: f"{row['peak_pending']:,}"),
)


def timeout_share(row: Row) -> float:
    """Return the share of a setting's operations that timed out."""
    return float(row["expired"] / row["operations"])


def write_page(sweep: Sweep, result: SimulateResult, path: Path) -> Path:
    """Write the result of a simulation to *path*."""
    rows: list[Row] = result.settings.to_pylist()
    load = sweep.load
    page = Page(
        "Wheels under a drawn load",
        f"{load.operations:,} operations for each setting, on {load.shards} wheels, "
        f"seed {load.seed}; "
        f"{_never(load)} complete within {load.waits.quantile(0.5):.4g} s, three quarters within "
        f"{load.waits.quantile(0.75):.4g} s.",
    )
    page.cards(
        [
            ("settings", f"{len(rows)}"),
            ("operations simulated", f"{result.operations:,}"),
            ("per CPU second", f"{result.speed:,.0f}"),
            ("most memory of a worker", f"{result.peak_bytes / 1e6:,.0f} MB"),
        ]
    )
    page.section(
        "What the wheels did",
        "Counts are summed over the wheels; lateness, levels and peak are the largest of any one.",
    )
    page.table([name for name, _ in COLUMNS], [[cell(row) for _, cell in COLUMNS] for row in rows])
    charts: list[tuple[str, Callable[[Row], float], str]] = [
        ("Cascades per operation", lambda row: row["cascaded"] / row["operations"], "{:.3g}"),
        ("Wake-ups per second and wheel", lambda row: _wake_ups(row, load), "{:,.4g}"),
        ("Operations timed out", lambda row: 100 * timeout_share(row), "{:.4g} %"),
    ]
    for title, value, form in charts if len(sweep.ticks_ns) > 1 else ():
        page.section(f"{title}, by tick")
        chart = line_chart(
            _lines(sweep, rows, value),
            x_label="tick",
            y_label=title,
            x_text=lambda tick: span_text(round(tick)),
            y_text=form.format,
            log_x=True,
        )
        page.figure(chart, "Hover a point for its value.")
    return page.save(path)


def _never(load: Load) -> str:
    never = load.waits.never
    return f"{100 * never:.4g} % never complete; of the others half" if never else "half"


def _wake_ups(row: Row, load: Load) -> float:
    return float(row["wake_ups"] / load.shards / max(row["span_ns"] / 1e9, 1e-9))


def _lines(
    sweep: Sweep, rows: list[Row], value: Callable[[Row], float]
) -> dict[str, list[tuple[float, float]]]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        name = f"wheel size {row['wheel_size']}"
        if len(sweep.timeouts_ns) > 1:
            name += f", timeout {span_text(row['timeout_ns'])}"
        if len(sweep.rates) > 1:
            name += f", {row['rate']:,.6g}/s"
        lines.setdefault(name, []).append((row["tick_ns"], value(row)))
    return lines
