"""The picture of the report, with any names of purgatories and kinds."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("matplotlib")

import pyarrow as pa
from matplotlib.figure import Figure

from aiowheel.jobs.report.picture import draw_picture

pytestmark = pytest.mark.one_build


def tables_of(purgatory: str, kind: str) -> dict[str, pa.Table]:
    """Return the tables of the picture: one timeout and one completion."""
    group = {"purgatory": purgatory, "kind": kind}
    counted = group | {"lower_ns": 0, "upper_ns": 1_000, "operations": 1}
    share = group | {"bucket_start_ns": 0, "bucket_ns": 1_000_000, "timeout_share": 0.5}
    rows = {
        "outcomes": group | {"operations": 2},
        "lateness_histogram": counted,
        "completion_histogram": counted,
        "timeouts_over_time": share,
    }
    return {name: pa.Table.from_pylist([row]) for name, row in rows.items()}


@pytest.mark.parametrize(
    ("purgatory", "kind", "shown"),
    [
        ("$a^^b$", "k", "$a^^b$ / k"),
        ("$x$", "k", "$x$ / k"),
        ("_inner", "_k", "_inner / _k"),
        ("\u4e3b", "k", "\u4e3b / k"),
        ("a\x1b[31m", "k", "a\\x1b[31m / k"),
    ],
)
def test_a_name_is_shown_literally(
    purgatory: str, kind: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is neither a formula nor hidden, and missing glyphs give no warning."""
    seen: list[str] = []
    save = Figure.savefig

    def look(figure: Figure, *args: object, **options: object) -> None:
        legends = [axes.get_legend() for axes in figure.axes]
        texts = [text.get_text() for legend in legends if legend for text in legend.get_texts()]
        seen.extend(texts)
        save(figure, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Figure, "savefig", look)

    picture = draw_picture(tables_of(purgatory, kind), tmp_path / "report.png")

    assert picture.stat().st_size > 0
    labels = [text.replace(r"\$", "$").strip() for text in seen]
    assert labels == [f"{shown} (1)", f"{shown} (1)", shown]
