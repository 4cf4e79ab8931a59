"""The figures that the README picks are figures that were measured."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parents[2]


def test_the_readme_shows_figures_of_the_page() -> None:
    """Every number of its table stands in a table of the page, in a row of the same contender."""
    page = (ROOT / "docs/explanation/figures.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines()]
    (table,) = re.findall(
        r"^\| \| aiowheel \| asyncio \| uvloop \|\n\|.*\n((?:\|.*\n)+)",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    own = {
        "aiowheel": ("aiowheel, asyncio", "aiowheel, uvloop"),
        "asyncio": ("own, asyncio",),
        "uvloop": ("own, uvloop",),
    }

    for line in table.splitlines():
        what, *numbers = [cell.strip() for cell in line.strip("|").split("|")]
        for (contender, names), number in zip(own.items(), numbers, strict=True):
            measured = [row for row in rows if len(row) > 2 and row[1] in names and number in row]
            assert measured, f"{what}, {contender}: {number} is on no row of {names}"
