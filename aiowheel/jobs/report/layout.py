"""The displayed columns of the report, and how values are formatted. Rank 5."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiowheel._printable import printable
from aiowheel.jobs.report.spans import span_text

Cell = Callable[[Any], str]
#: Number of displayed rows of the ranked tables; the files hold more.
MOST_ROWS = 5


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
