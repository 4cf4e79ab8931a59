"""The report as one HTML file: charts above their tables. Rank 5; no extra needed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from aiowheel.jobs.report.charts import bar_chart, line_chart
from aiowheel.jobs.report.html import Page
from aiowheel.jobs.report.layout import (
    LAYOUT,
    MOST_GROUPS,
    Row,
    charted_groups,
    counts_by_range,
    group_of,
    keys_cell,
    shares_over_time,
    text_cell,
    time_unit,
)
from aiowheel.jobs.report.spans import span_text
from aiowheel.jobs.report.tables import HISTOGRAM_EDGES_NS

_MOST_ROWS = 20
_HINTS = {
    "outcomes": "Timed out counts every operation whose timeout came before its condition was met, "
    "and every operation that closing its purgatory expired; share is timed out divided by "
    "operations.",
    "completion_quantiles": "From being watched to being completed.",
    "lateness_quantiles": "Outcome minus deadline. A wheel is late by less than a tick by "
    "design; the rest is the event loop being busy.",
    "hot_keys": "An operation counts for each key it watches.",
    "worst_operations": "Late by is the outcome minus the deadline of an operation that timed out; "
    "the greatest comes first. A completed operation did not time out and is never late: such "
    "operations stand behind the timeouts, by the time they waited.",
}


def write_page(tables: Mapping[str, pa.Table], origin: Mapping[str, str], path: Path) -> Path:
    """Write the report to *path*; *tables* are those of `run_report`."""
    outcomes = tables["outcomes"].to_pylist()
    over_time = tables["timeouts_over_time"].to_pylist()
    page = Page("What waited, and how it ended", _period(over_time))
    page.origin(origin)
    page.cards(_cards(outcomes, tables["lateness_quantiles"].to_pylist()))
    groups = charted_groups(outcomes)
    if len(outcomes) > MOST_GROUPS:
        page.section(
            f"{len(outcomes)} purgatories and kinds",
            f"The charts show the {MOST_GROUPS} with most operations, the tables all.",
        )
    _add_table(page, tables, "outcomes")
    page.section("Share of operations that timed out, over time")
    page.figure(_timeouts(over_time, groups), _bucket_caption(over_time))
    for what, axis in (("completion", "completed operations"), ("lateness", "timeouts")):
        _add_table(page, tables, f"{what}_quantiles")
        chart = _histogram(tables[f"{what}_histogram"].to_pylist(), groups, axis)
        page.figure(chart, "A bar stands between the two ends of its range; hover for its value.")
    _add_table(page, tables, "hot_keys")
    _add_table(page, tables, "worst_operations")
    return page.save(path)


def _period(rows: list[Row]) -> str:
    if not rows:
        return "The trace holds no operation."
    ends = [row["bucket_start_ns"] for row in rows]
    first, last = (
        datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")
        for ns in (min(ends), max(ends) + rows[0]["bucket_ns"])
    )
    return f"Operations that ended from {first} to {last} UTC."


def _cards(outcomes: list[Row], lateness: list[Row]) -> list[tuple[str, str]]:
    operations = sum(row["operations"] for row in outcomes)
    expired = sum(row["expired"] for row in outcomes)
    failed = sum(row["failed"] for row in outcomes)
    share = f"{100 * expired / operations:.2f} %" if operations else "none"
    latest = max((row["max_ns"] for row in lateness), default=None)
    return [
        ("operations", f"{operations:,}"),
        ("timed out", f"{expired:,}"),
        ("share", share),
        ("failed", f"{failed:,}"),
        ("most lateness of a timeout", "none" if latest is None else span_text(latest)),
    ]


def _add_table(page: Page, tables: Mapping[str, pa.Table], name: str) -> None:
    title, columns = LAYOUT[name]
    page.section(title, _HINTS[name])
    rows = [row for row in tables[name].to_pylist() if row.get("rank", 1) <= _MOST_ROWS]
    texts = [cell in {text_cell, keys_cell} for _, cell in columns.values()]
    page.table(
        [heading for heading, _ in columns.values()],
        [[cell(row[column]) for column, (_, cell) in columns.items()] for row in rows],
        texts=texts.index(False),
    )


def _timeouts(rows: list[Row], groups: list[str]) -> str:
    unit, unit_ns = time_unit(rows)
    return line_chart(
        {group: shares_over_time(rows, group, unit_ns) for group in groups},
        x_label=f"{unit} since the first operation ended",
        y_label="share timed out",
        x_text=lambda time: f"{time:g}",
        y_text=lambda percent: f"{percent:.3g} %",
    )


def _bucket_caption(rows: list[Row]) -> str:
    return f"One point per {span_text(rows[0]['bucket_ns'])}." if rows else ""


def _histogram(rows: list[Row], groups: list[str], axis: str) -> str:
    counts = counts_by_range(row for row in rows if group_of(row) in groups)
    if not counts:
        return bar_chart([], {}, x_label="", y_label="", y_text=str)
    first = min(min(places) for places in counts.values())
    last = max(max(places) for places in counts.values())
    names = [*map(span_text, HISTOGRAM_EDGES_NS), "longer"]
    # A group without values keeps its place, so that it has the same colour in every chart.
    bars = {group: _shares(counts.get(group, {}), range(first, last + 1)) for group in groups}
    return bar_chart(
        names[first : last + 2],
        bars,
        x_label="",
        y_label=f"share of {axis}",
        y_text=lambda percent: f"{percent:.3g} %",
    )


def _shares(counts: Mapping[int, int], places: range) -> list[float]:
    total = sum(counts.values()) or 1
    return [100 * counts.get(place, 0) / total for place in places]
