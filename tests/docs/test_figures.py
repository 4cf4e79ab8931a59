"""The figures on the front pages are measured figures."""

import re
from pathlib import Path

import pytest

from benchmarks.figures import heading

pytestmark = pytest.mark.one_build

ROOT = Path(__file__).parents[2]
SIDES = {
    "aiowheel": ("aiowheel, asyncio", "aiowheel, uvloop"),
    "asyncio": ("own, asyncio",),
    "uvloop": ("own, uvloop",),
    "rloop": ("own, rloop",),
}


@pytest.mark.parametrize("name", ["README.md", "docs/index.md"])
def test_a_front_page_shows_measured_figures(name: str) -> None:
    """Every number of the table is in a table of `figures.md`, in a row of the same contender.

    Numbers of loops that `figures.md` does not measure are in the text of how-we-benchmark.md.
    """
    measured = (ROOT / "docs/explanation/figures.md").read_text("utf-8")
    rows = [[cell.strip() for cell in line.split("|")] for line in measured.splitlines()]
    by_hand = (ROOT / "docs/explanation/how-we-benchmark.md").read_text("utf-8")
    ((header, table),) = re.findall(
        r"^\| \| (aiowheel \| asyncio \| .*) \|\n\|.*\n((?:\|.*\n)+)",
        (ROOT / name).read_text("utf-8"),
        re.MULTILINE,
    )
    contenders = [cell.strip() for cell in header.split("|")]

    for line in table.splitlines():
        what, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        for title, cell in zip(contenders, cells, strict=True):
            # "rloop (aiowheel)" has cells such as "828 (366)", of two contenders in one run.
            pairs = zip(names(title), names(cell), strict=True) if cell != "-" else ()
            for contender, number in pairs:
                if contender in SIDES:
                    sides = SIDES[contender]
                    found = any(row[1] in sides and number in row for row in rows if len(row) > 2)
                else:
                    found = f"{number} " in by_hand
                assert found, f"{what}, {contender}: {number} was not measured"


def test_no_two_runs_have_one_heading() -> None:
    """A reader finds each run in the table of contents, and a link leads to it."""
    page = (ROOT / "docs/explanation/figures.md").read_text("utf-8")
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)

    assert sorted(set(headings)) == sorted(headings)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"only": None, "keys": 1}, "## timer"),
        ({"only": "churn", "keys": 1}, "## timer: only churn"),
        ({"only": None, "cases": ["low", "high"], "keys": 3}, "## timer: cases low, high, keys 3"),
    ],
)
def test_a_heading_tells_what_differs_from_the_first_run(
    arguments: dict[str, object], expected: str
) -> None:
    """Arguments that both runs have in common are left out."""
    first = {"program": "timer", "arguments": {"only": None, "keys": 1}}

    assert heading({"program": "timer", "arguments": arguments}, first) == expected


def names(cell: str) -> list[str]:
    """Return the two parts of `a (b)`, or *cell* alone."""
    return cell.removesuffix(")").split(" (")
