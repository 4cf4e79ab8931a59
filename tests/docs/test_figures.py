"""The figures on the front pages and in the choice of a tool are measured figures."""

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
    """Every number of the table is in a table of `figures.md`, in a row of the same contender."""
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
                text = f"{what}, {contender}: {number} was not measured"
                assert is_measured(number, contender), text


@pytest.mark.parametrize(
    ("tool", "contenders"),
    [("asyncio", ["asyncio"]), ("uvloop", ["uvloop", "aiowheel"]), ("zuvloop", ["zuvloop"])],
)
def test_the_choice_of_a_tool_shows_measured_figures(tool: str, contenders: list[str]) -> None:
    """Each time in a section about a loop is one of that loop, or of aiowheel."""
    page = (ROOT / "docs/which-tool.md").read_text("utf-8")
    section = page.partition(f"\n## {tool}\n")[2].partition("\n## ")[0]
    numbers = re.findall(r"(\d[\d.,]*(?: to \d[\d.,]*)?) (?:ns|µs|ms)\b", section)

    assert numbers
    for number in numbers:
        assert any(is_measured(number, contender) for contender in contenders), number


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


def is_measured(number: str, contender: str) -> bool:
    """Return whether a row of the contender has *number*, which may stand for a negative one.

    Numbers of loops that `figures.md` does not measure are in the text of how-we-benchmark.md.
    """
    folder = ROOT / "docs/explanation"
    if contender not in SIDES:
        return f"{number} " in (folder / "how-we-benchmark.md").read_text("utf-8")
    lines = (folder / "figures.md").read_text("utf-8").splitlines()
    rows = [[cell.strip().removeprefix("-") for cell in line.split("|")] for line in lines]
    return any(row[1] in SIDES[contender] and number in row for row in rows if len(row) > 2)


def names(cell: str) -> list[str]:
    """Return the two parts of `a (b)`, or *cell* alone."""
    return cell.removesuffix(")").split(" (")
