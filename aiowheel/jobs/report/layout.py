"""The displayed columns and lines of the report, and how values are formatted. Rank 5."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from aiowheel._printable import printable
from aiowheel.jobs.report.charts import COLOURS
from aiowheel.jobs.report.spans import span_text
from aiowheel.jobs.report.tables import HISTOGRAM_EDGES_NS

Row = dict[str, Any]
Cell = Callable[[Any], str]
#: Number of displayed rows of the ranked tables; the files hold more.
MOST_ROWS = 5
#: Number of purgatories and kinds in a chart.
MOST_GROUPS = COLOURS
#: The units of a time axis; each is used from four units on.
_TIME_UNITS = (("days", 86_400_000_000_000), ("hours", 3_600_000_000_000))
_LEAST_UNITS = 4


def text_cell(value: Any) -> str:
    """Return *value* as one line of text that is safe to print on a terminal."""
    return printable(value)


def _count(value: Any) -> str:
    return f"{value:,}"


def _share(value: Any) -> str:
    return f"{100 * value:.2f} %"


def _span(value: Any) -> str:
    return "" if value is None else span_text(value)


def keys_cell(value: Any) -> str:
    """Return the first three keys of a list, formatted by `text_cell`."""
    return ", ".join(map(text_cell, value[:3])) + (", ..." if len(value) > 3 else "")


def group_of(row: Row) -> str:
    """Return the name of a row's purgatory and kind."""
    return f"{text_cell(row['purgatory'])} / {text_cell(row['kind'])}"


def charted_groups(outcomes: Iterable[Row]) -> list[str]:
    """Return the groups that the charts show: those with most operations."""
    largest = sorted(outcomes, key=itemgetter("operations"), reverse=True)[:MOST_GROUPS]
    return [group_of(row) for row in largest]


def counts_by_range(rows: Iterable[Row]) -> dict[str, dict[int, int]]:
    """Return the counts of a histogram, by group and by index of the range's lower edge."""
    counts: dict[str, dict[int, int]] = {}
    for row in rows:
        place = HISTOGRAM_EDGES_NS.index(row["lower_ns"])
        counts.setdefault(group_of(row), {})[place] = row["operations"]
    return counts


def time_unit(rows: Sequence[Row]) -> tuple[str, int]:
    """Return the name and the nanoseconds of the unit of a time axis.

    Args:
        rows: The rows of `timeouts_over_time`.
    """
    starts = [row["bucket_start_ns"] for row in rows]
    span_ns = max(starts) - min(starts) if starts else 0
    for name, unit_ns in _TIME_UNITS:
        if span_ns >= _LEAST_UNITS * unit_ns:
            return name, unit_ns
    return "seconds", 1_000_000_000


def shares_over_time(rows: Sequence[Row], group: str, unit_ns: int) -> list[tuple[float, float]]:
    """Return the points of the line of *group*, from the rows of `timeouts_over_time`.

    A point is the middle of a bucket, in units since the first bucket of all groups, and the
    percentage of its operations that timed out. A bucket in which no operation ended has NaN, which
    interrupts the line.
    """
    origin, width = min(row["bucket_start_ns"] for row in rows), rows[0]["bucket_ns"]
    own = [row for row in rows if group_of(row) == group]
    shares = {row["bucket_start_ns"]: row["timeout_share"] for row in own}
    return [
        ((start - origin + width / 2) / unit_ns, 100 * shares.get(start, math.nan))
        for start in range(min(shares), max(shares) + 1, width)
    ]


_GROUP: dict[str, tuple[str, Cell]] = {
    "purgatory": ("purgatory", text_cell),
    "kind": ("kind", text_cell),
}
_QUANTILES: dict[str, tuple[str, Cell]] = {
    **_GROUP,
    "operations": ("operations", _count),
    "p50_ns": ("half within", _span),
    "p90_ns": ("90 %", _span),
    "p99_ns": ("99 %", _span),
    "p999_ns": ("99.9 %", _span),
    "max_ns": ("longest", _span),
}
#: For each table its title, and for each displayed column its heading and the value's format.
LAYOUT: Mapping[str, tuple[str, Mapping[str, tuple[str, Cell]]]] = {
    "outcomes": (
        "How the operations ended",
        {
            **_GROUP,
            "operations": ("operations", _count),
            "completed": ("completed", _count),
            "expired": ("timed out", _count),
            "cancelled": ("cancelled", _count),
            "failed": ("failed", _count),
            "timeout_share": ("share", _share),
        },
    ),
    "completion_quantiles": ("How long completed operations had waited", _QUANTILES),
    "lateness_quantiles": ("How late the timeouts came", _QUANTILES),
    "hot_keys": (
        "The most watched keys",
        {
            "purgatory": ("purgatory", text_cell),
            "key": ("key", text_cell),
            "operations": ("operations", _count),
            "timeout_share": ("timed out", _share),
        },
    ),
    "worst_operations": (
        "The timeouts with the most lateness, then the longest waits",
        {
            **_GROUP,
            "operation_id": ("operation", text_cell),
            "keys": ("keys", keys_cell),
            "outcome": ("outcome", text_cell),
            "waited_ns": ("waited", _span),
            "lateness_ns": ("late by", _span),
        },
    ),
}
