"""The schema and its documentation."""

from pathlib import Path

import pytest

from aiowheel.trace import TRACE_COLUMNS, TRACE_SCHEMA

pytestmark = pytest.mark.one_build

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "trace-schema.md"


def test_the_page_lists_every_column_as_it_is() -> None:
    """Name, type, unit and meaning on the reference page equal those in the code."""
    rows = [
        f"| `{column.name}` | {column.type} | {'yes' if column.nullable else 'no'} "
        f"| {column.unit} | {column.description} |"
        for column in TRACE_COLUMNS
    ]
    page = PAGE.read_text(encoding="utf-8").splitlines()

    assert [line for line in page if line.startswith("| `")][: len(rows)] == rows


def test_every_time_has_a_unit() -> None:
    """A whole number without a unit is ambiguous."""
    assert [
        column.name
        for column in TRACE_COLUMNS
        if "int" in str(column.type) and str(column.type).startswith("int") and not column.unit
    ] == []
    assert TRACE_SCHEMA.names == [column.name for column in TRACE_COLUMNS]
