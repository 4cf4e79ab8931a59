"""One picture of several benchmarks, with a panel for each of their tables."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiowheel._outputs import whole_folder
from aiowheel.errors import MissingExtraError

_ACROSS = 3
_SPREAD = 20  # from this ratio of the values on, the scale of a panel is logarithmic
_OURS, _OTHERS = "#0067a5", "#9aa5b8"


@dataclass(frozen=True, slots=True)
class Panel:
    """The first column of figures of a table.

    Attributes:
        title: The title of the program and the table.
        figure: The heading of the column.
        bars: The name of each row, its value as text and as a number, in the table's order.
    """

    title: str
    figure: str
    bars: Sequence[tuple[str, str, float]]


def panels_of(run: Mapping[str, Any]) -> Iterator[Panel]:
    """Yield the panels of one program's JSON; a table without figures has no panel."""
    for table in run["tables"]:
        found: list[tuple[str, str, float]] = []
        for name, *cells in table["rows"]:
            value = _number(cells[0]) if cells else None
            if value is not None:
                found.append((name, cells[0], value))
        if found:
            yield Panel(f"{run['program']}: {table['title']}", table["columns"][1], found)


def draw_summary(runs: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the results of several programs as one PNG.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("plot") from error
    panels = [panel for run in runs for panel in panels_of(run)]
    down = max(1, -(-len(panels) // _ACROSS))
    tallest = max((len(panel.bars) for panel in panels), default=1)
    picture = Figure(figsize=(7 * _ACROSS, (1.1 + 0.28 * tallest) * down), layout="constrained")
    FigureCanvasAgg(picture)
    places = picture.subplots(down, _ACROSS, squeeze=False).flat
    for place, axes in enumerate(places):
        if place < len(panels):
            _draw(axes, panels[place])
        else:
            axes.set_axis_off()
    if runs:
        picture.suptitle(_machine(runs[0]["machine"]))
    with whole_folder(path.parent) as folder:
        picture.savefig(folder / path.name, dpi=80)


def _draw(axes: Any, panel: Panel) -> None:
    names, texts, values = zip(*panel.bars, strict=True)
    colors = [_OURS if name.startswith("aiowheel") else _OTHERS for name in names]
    drawn = axes.barh(range(len(names)), values, color=colors)
    axes.bar_label(drawn, labels=texts, padding=3, fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()  # puts the first row of the table at the top
    positive = [value for value in values if value > 0]
    if len(positive) == len(values) and max(values) > _SPREAD * min(values):
        axes.set_xscale("log")
    axes.margins(x=0.2)  # space for the labels
    axes.set_title("\n".join(textwrap.wrap(panel.title, 70)), fontsize=9, loc="left")
    axes.set_xlabel(panel.figure, fontsize=8)
    axes.tick_params(axis="x", labelsize=7)


def _machine(machine: Mapping[str, Any]) -> str:
    return (
        f"{machine['python']}, {machine['build']} build, {machine['cpu']}, {machine['cores']} "
        f"cores, load {machine['load']} when it began, commit {machine['commit']}"
    )


def _number(cell: str) -> float | None:
    try:
        return float(cell.replace(",", ""))
    except ValueError:
        return None
