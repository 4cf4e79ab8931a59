"""The picture of the report, with any names of purgatories and kinds."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("matplotlib")

import pyarrow as pa
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from aiowheel.jobs.report.layout import Row
from aiowheel.jobs.report.picture import draw_picture
from aiowheel.jobs.report.tables import HISTOGRAM_EDGES_NS

pytestmark = pytest.mark.one_build


def tables_of(*groups: tuple[str, str], edges: Sequence[int] = (0,)) -> dict[str, pa.Table]:
    """Return the tables of the picture: a timeout and a completion from each of *edges* on.

    The later a purgatory and kind stands in *groups*, the more operations it has.
    """
    rows: dict[str, list[Row]] = {
        "outcomes": [],
        "lateness_histogram": [],
        "completion_histogram": [],
        "timeouts_over_time": [],
    }
    for nth, (purgatory, kind) in enumerate(groups):
        group: Row = {"purgatory": purgatory, "kind": kind}
        rows["outcomes"].append(group | {"operations": 2 + nth})
        counted = [group | {"lower_ns": edge, "operations": 1} for edge in edges]
        rows["lateness_histogram"] += counted
        rows["completion_histogram"] += counted
        share = group | {"bucket_start_ns": 0, "bucket_ns": 1_000_000, "timeout_share": 0.5}
        rows["timeouts_over_time"].append(share)
    return {name: pa.Table.from_pylist(each) for name, each in rows.items()}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Return the list to which each saved figure is added."""
    figures: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *args: object, **options: object) -> None:
        save(figure, *args, **options)  # type: ignore[arg-type]
        figures.append(figure)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


def names_in(legend: Legend | None) -> list[str]:
    """Return the texts of a legend."""
    assert legend is not None
    return [text.get_text().replace(r"\$", "$").strip() for text in legend.get_texts()]


@pytest.mark.parametrize(
    ("purgatory", "kind", "shown"),
    [
        ("$a^^b$", "k", "$a^^b$ / k"),
        pytest.param("$x$", "k", "$x$ / k", marks=pytest.mark.thorough),
        ("_inner", "_k", "_inner / _k"),
        ("\u4e3b", "k", "\u4e3b / k"),
        pytest.param("a\x1b[31m", "k", "a\\x1b[31m / k", marks=pytest.mark.thorough),
    ],
)
def test_a_name_is_shown_literally(
    purgatory: str, kind: str, shown: str, tmp_path: Path, drawn: list[Figure]
) -> None:
    """The name is neither a formula nor hidden, and missing glyphs give no warning."""
    picture = draw_picture(tables_of((purgatory, kind)), tmp_path / "report.png")

    assert picture.stat().st_size > 0
    labels = [name for axes in drawn[0].axes for name in names_in(axes.get_legend())]
    assert labels == [f"{shown} (1)", f"{shown} (1)", shown]


def test_the_groups_of_the_page_are_drawn(tmp_path: Path, drawn: list[Figure]) -> None:
    """With more, groups would share colours, and the legends would cover the charts."""
    groups = [(f"topic{nth:02}", "Fetch") for nth in range(40)]

    draw_picture(tables_of(*groups), tmp_path / "report.png")

    wanted = {f"topic{nth:02} / Fetch" for nth in range(33, 40)}
    for axes in drawn[0].axes:
        assert {name.removesuffix(" (1)") for name in names_in(axes.get_legend())} == wanted
    assert "7 of 40 purgatories and kinds" in drawn[0].get_suptitle()
    lines = drawn[0].axes[2].lines
    assert len({line.get_color() for line in lines}) == 7


def test_all_groups_are_drawn_without_a_remark(tmp_path: Path, drawn: list[Figure]) -> None:
    """Seven have a colour each."""
    groups = [(f"topic{nth}", "Fetch") for nth in range(7)]

    draw_picture(tables_of(*groups), tmp_path / "report.png")

    assert len(names_in(drawn[0].axes[0].get_legend())) == 7
    assert drawn[0].get_suptitle() == ""


def test_the_axis_of_a_long_trace_counts_days(tmp_path: Path, drawn: list[Figure]) -> None:
    """The page has the same axis."""
    tables = tables_of(("fetch", "Fetch"))
    row = tables["timeouts_over_time"].to_pylist()[0] | {"bucket_ns": 20_000 * 10**9}
    rows = [row | {"bucket_start_ns": nth * 20_000 * 10**9} for nth in range(60)]
    tables["timeouts_over_time"] = pa.Table.from_pylist(rows)

    draw_picture(tables, tmp_path / "report.png")

    axes = drawn[0].axes[2]
    assert axes.get_xlabel().startswith("days since the first operation finished")
    assert axes.get_xlim()[1] < 20


@pytest.mark.parametrize("ranges", [1, 12, len(HISTOGRAM_EDGES_NS)])
def test_the_labels_of_ranges_do_not_touch(
    ranges: int, tmp_path: Path, drawn: list[Figure]
) -> None:
    """Of many ranges, every second or third has a label."""
    edges = HISTOGRAM_EDGES_NS[:ranges]

    draw_picture(tables_of(("fetch", "Fetch"), edges=edges), tmp_path / "report.png")

    labels = [label for label in drawn[0].axes[0].get_xticklabels() if label.get_text()]
    boxes = [label.get_window_extent() for label in labels]
    assert len(boxes) >= 2
    assert all(before.x1 < after.x0 for before, after in pairwise(boxes))
