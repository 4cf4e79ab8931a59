"""Printing of results as lines, a table or JSON. Rank 5."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiowheel._printable import printable


def print_json(value: object) -> None:
    """Print one JSON value on stdout.

    Characters that are unprintable or not in the encoding of stdout are escaped as in JSON.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    lines = json.dumps(value, indent=2, ensure_ascii=False).split("\n")
    print("\n".join(_escaped(line, encoding) for line in lines))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int = 0) -> None:
    """Print rows on stdout as aligned columns.

    A column with the same value in all rows is printed once, below the table. A single row is
    printed as names and values. Unprintable characters are escaped.

    Args:
        headings: One heading per column.
        rows: At least one row of cells.
        texts: Number of left-aligned columns, from the first one on.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    if len(rows) == 1:
        print_lines(zip(headings, rows[0], strict=True))
        return
    columns = list(zip(headings, *rows, strict=True))
    differing = [place for place, column in enumerate(columns) if len(set(column[1:])) > 1]
    widths = {place: max(map(len, columns[place])) for place in differing}
    for row in (headings, *rows):
        cells = [
            row[place].ljust(width) if place < texts else row[place].rjust(width)
            for place, width in widths.items()
        ]
        print("  ".join(cells).rstrip())
    same = [f"{name} {rows[0][at]}" for at, name in enumerate(headings) if at not in differing]
    if same:
        print(f"the same in all rows: {', '.join(same)}")


def print_lines(lines: Iterable[tuple[str, object]], *, to_stderr: bool = False) -> None:
    """Print names and values on stdout, one pair a line, so that each value can be copied.

    Unprintable characters are escaped.
    """
    rows = [(name, printable(value)) for name, value in lines]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}", file=sys.stderr if to_stderr else sys.stdout)


def print_result(result: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the result of a run on stdout; lines of text leave out missing values."""
    if as_json:
        print_json(result)
        return
    found = {name: value for name, value in result.items() if value is not None}
    print_lines([(name.replace("_", " "), _text(value)) for name, value in found.items()])


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)


def _escaped(line: str, encoding: str) -> str:
    """Escape a line of JSON; only its strings can hold characters to escape."""
    if _can_print(line, encoding):
        return line
    return "".join(sign if _can_print(sign, encoding) else json.dumps(sign)[1:-1] for sign in line)


def _can_print(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return text.isprintable()
