"""The picture of the report: three panels, one PNG. Rank 5; needs the `plot` extra.

Source: the tables of `tables`. Drawn without pyplot, which keeps every figure in a module-level
list and tries to open a display.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from aiowheel.jobs.report.charts import MOST_LABELS
from aiowheel.jobs.report.layout import (
    Row,
    charted_groups,
    counts_by_range,
    group_of,
    shares_over_time,
    time_unit,
)
from aiowheel.jobs.report.spans import span_text
from aiowheel.jobs.report.tables import HISTOGRAM_EDGES_NS

# The palette of Okabe and Ito, distinguishable for most colour-blind readers.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def draw_picture(tables: Mapping[str, pa.Table], path: Path) -> Path:
    """Draw lateness, completion times and timeout share over time into *path*."""
    outcomes = tables["outcomes"].to_pylist()
    colours = dict(zip(charted_groups(outcomes), _COLOURS, strict=False))
    figure = Figure(figsize=(10, 11), layout="constrained")
    if len(colours) < len(outcomes):
        figure.suptitle(
            f"{len(colours)} of {len(outcomes)} purgatories and kinds: those with most operations"
        )
    late, done, over_time = figure.subplots(3, 1)
    _draw_histogram(late, tables["lateness_histogram"].to_pylist(), colours)
    late.set_title("How late timeouts came: outcome minus deadline")
    late.set_xlabel("lateness (a bar stands between the two ends of its range)")
    late.set_ylabel("timeouts (%)")
    _draw_histogram(done, tables["completion_histogram"].to_pylist(), colours)
    done.set_title("How long completed operations had waited")
    done.set_xlabel(
        "time from watch to completion (a bar stands between the two ends of its range)"
    )
    done.set_ylabel("completed operations (%)")
    _draw_timeouts(over_time, tables["timeouts_over_time"].to_pylist(), colours)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+")  # drawn as a box; the page has the name
        figure.savefig(path, format="png", dpi=110)
    return path


def _label(name: str) -> str:
    # matplotlib reads text between dollars as a formula, and omits labels that begin with "_".
    return " " + name.replace("$", r"\$")


def _draw_histogram(axes: Axes, rows: list[Row], colours: Mapping[str, str]) -> None:
    counts = counts_by_range(row for row in rows if group_of(row) in colours)
    if not counts:
        _write_none(axes)
        return
    first = min(min(places) for places in counts.values())
    last = max(max(places) for places in counts.values())
    width = 0.9 / len(counts)
    for nth, (group, places) in enumerate(counts.items()):
        total = sum(places.values())
        axes.bar(
            [place - 0.45 + width * (nth + 0.5) for place in places],
            [100 * count / total for count in places.values()],
            width=width,
            color=colours[group],
            label=_label(f"{group} ({total:,})"),
        )
    edges = range(first, min(last + 2, len(HISTOGRAM_EDGES_NS)))
    edges = edges[:: math.ceil(len(edges) / MOST_LABELS)]
    axes.set_xticks(
        [edge - 0.5 for edge in edges], [span_text(HISTOGRAM_EDGES_NS[edge]) for edge in edges]
    )
    axes.set_xlim(first - 0.6, last + 0.6)
    axes.legend()


def _draw_timeouts(axes: Axes, rows: list[Row], colours: Mapping[str, str]) -> None:
    axes.set_title("Share of operations that timed out, over time")
    axes.set_ylabel("timed out (%)")
    if not rows:
        _write_none(axes)
        return
    unit, unit_ns = time_unit(rows)
    for group, colour in colours.items():
        axes.plot(
            *zip(*shares_over_time(rows, group, unit_ns), strict=True),
            color=colour,
            marker="o",
            markersize=4,
            label=_label(group),
        )
    width = span_text(rows[0]["bucket_ns"])
    axes.set_xlabel(f"{unit} since the first operation finished; one point per {width}")
    axes.set_ylim(-3, 103)
    axes.legend()


def _write_none(axes: Axes) -> None:
    axes.text(0.5, 0.5, "none", ha="center", va="center", transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])
