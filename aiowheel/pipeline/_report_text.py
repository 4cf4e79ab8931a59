"""The report's key tables on a terminal. Rank 5; needs the `cli` extra."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ._spans import span_text

_Cell = Callable[[Any], str]
_MOST_KEYS = 5


def _text(value: Any) -> str:
    text = str(value)
    # Names and keys may come from anywhere: none of them commands the terminal.
    return text if text.isprintable() else repr(text)


def _count(value: Any) -> str:
    return f"{value:,}"


def _share(value: Any) -> str:
    return f"{100 * value:.2f} %"


def _span(value: Any) -> str:
    return "" if value is None else span_text(value)


def _keys(value: Any) -> str:
    return ", ".join(map(_text, value[:3])) + (", ..." if len(value) > 3 else "")


_GROUP: dict[str, tuple[str, _Cell]] = {
    "purgatory": ("purgatory", _text),
    "kind": ("kind", _text),
}
_QUANTILES: dict[str, tuple[str, _Cell]] = {
    **_GROUP,
    "operations": ("operations", _count),
    "p50_ns": ("half within", _span),
    "p90_ns": ("90 %", _span),
    "p99_ns": ("99 %", _span),
    "p999_ns": ("99.9 %", _span),
    "max_ns": ("longest", _span),
}
#: Per table: its title, and per column to show its heading and how a value is written.
_LAYOUT: Mapping[str, tuple[str, Mapping[str, tuple[str, _Cell]]]] = {
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
            "purgatory": ("purgatory", _text),
            "key": ("key", _text),
            "operations": ("operations", _count),
            "timeout_share": ("timed out", _share),
        },
    ),
    "worst_operations": (
        "The latest timeouts",
        {
            **_GROUP,
            "operation_id": ("operation", _text),
            "keys": ("keys", _keys),
            "outcome": ("outcome", _text),
            "waited_ns": ("waited", _span),
            "lateness_ns": ("late by", _span),
        },
    ),
}


def print_report(tables: Mapping[str, pa.Table], console: Console) -> None:
    """Print the key tables of a report, hot keys and worst operations cut to a few rows each."""
    for name, (title, columns) in _LAYOUT.items():
        rows = tables[name].to_pylist()
        shown = [row for row in rows if row.get("rank", 1) <= _MOST_KEYS]
        table = Table(title=title, title_justify="left")
        for heading, cell in columns.values():
            table.add_column(heading, justify="left" if cell in {_text, _keys} else "right")
        for row in shown:
            table.add_row(*(Text(cell(row[column])) for column, (_, cell) in columns.items()))
        console.print(table)
