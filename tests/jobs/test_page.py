"""Pages and charts: their contents, and the escaping of names."""

import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiowheel.jobs.report.charts import bar_chart, line_chart, round_ticks
from aiowheel.jobs.report.html import Page

pytestmark = pytest.mark.one_build

EVIL = '<script>"&\x1b'


class Tags(HTMLParser):
    """A parser that collects the names of all elements, and checks the order of end tags."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record an element."""
        self.seen.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record an element without content."""
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        """Check that the last opened element is closed."""
        assert self.open.pop() == tag


def test_names_are_escaped(tmp_path: Path) -> None:
    """Titles, cells, cards, code and chart names are escaped, control characters as text."""
    page = Page(EVIL, EVIL)
    page.origin({EVIL: EVIL})
    page.cards([(EVIL, EVIL)])
    page.section(EVIL, EVIL)
    page.table([EVIL, EVIL], [[EVIL, EVIL]], texts=1, best=0)
    page.code(EVIL)
    page.figure(
        line_chart({EVIL: [(0, 1)]}, x_label=EVIL, y_label=EVIL, x_text=str, y_text=str), EVIL
    )
    page.figure(bar_chart([EVIL, EVIL], {EVIL: [1.0]}, x_label=EVIL, y_label=EVIL, y_text=str), "")

    html = page.save(tmp_path / "page.html").read_text(encoding="utf-8")

    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    assert "script" not in tags.seen
    assert "\x1b" not in html
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_line_breaks_at_nan() -> None:
    """A NaN has no dot and no line to it."""
    chart = line_chart(
        {"a": [(0, 1), (1, math.nan), (2, 3), (3, 4)]},
        x_label="",
        y_label="",
        x_text=str,
        y_text=str,
    )

    (path,) = re.findall(r' d="([^"]+)"', chart)
    assert (path.count("M"), path.count("L")) == (2, 1)
    assert chart.count("<circle") == 3


@pytest.mark.parametrize("lines", [{}, {"a": []}, {"a": [(1.0, math.nan)]}])
def test_an_empty_chart_has_a_text(lines: dict[str, list[tuple[float, float]]]) -> None:
    """The chart has a text in place of empty axes."""
    assert "None in" in line_chart(lines, x_label="", y_label="", x_text=str, y_text=str)
    assert "None in" in bar_chart(["0", "1"], {"a": [0.0]}, x_label="", y_label="", y_text=str)


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9), st.integers(2, 8))
@example(0.0, 5e-324, 2)
@example(-5e-324, 3.0, 2)
@example(0.0, 0.0, 4)
@example(7.0, 0.0, 4)
def test_ticks_are_round_and_cover_the_range(low: float, span: float, wanted: int) -> None:
    """Ticks reach from at most the least value to at least the greatest, a few more than wanted."""
    high = low + span

    ticks = round_ticks(low, high, wanted)

    step = ticks[1] - ticks[0]
    assert ticks[0] <= low + abs(low) * 1e-9 + step * 1e-6
    assert ticks[-1] >= high - 1e-6 * step
    assert 2 <= len(ticks) <= 2 * wanted + 2
