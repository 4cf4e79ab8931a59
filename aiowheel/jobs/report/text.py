"""The report's key tables as text. Rank 5; needs the `cli` extra."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aiowheel._printable import cut
from aiowheel.jobs.report.layout import LAYOUT, MOST_ROWS, keys_cell, text_cell


def print_report(tables: Mapping[str, pa.Table], console: Console) -> None:
    """Print the key tables of a report, with a few rows of hot keys and worst operations."""
    for name, (title, columns) in LAYOUT.items():
        rows = tables[name].to_pylist()
        shown = [row for row in rows if row.get("rank", 1) <= MOST_ROWS]
        # No lines between the columns, so that eight of them fit into 80 characters.
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for heading, cell in columns.values():
            words = cell in {text_cell, keys_cell}
            table.add_column(heading, justify="left" if words else "right", overflow="fold")
        for row in shown:
            table.add_row(*(Text(cell(_cut(row[column]))) for column, (_, cell) in columns.items()))
        console.print(table)
        console.print()


def _cut(value: Any) -> Any:
    """Return *value* with long texts cut; the page and the files have them whole."""
    if isinstance(value, list):
        return [_cut(each) for each in value]
    return cut(value) if isinstance(value, str) else value
