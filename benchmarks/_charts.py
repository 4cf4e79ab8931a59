"""The three charts of the purgatory benchmark: throughput, CPU and collector by rate."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from aiowheel._outputs import whole_folder
from aiowheel.errors import MissingExtraError
from benchmarks._rounds import Series

CHARTS = {
    "throughput": ("achieved", "requests per second, achieved"),
    "cpu": ("cpu_us", "CPU microseconds per request"),
    "gc": ("gc_percent", "% of the CPU time in the cyclic collector"),
}


def draw(lines: Mapping[str, Sequence[Series]], beside: Path) -> list[Path]:
    """Draw one picture per chart, with one panel per case.

    *lines* are those of a report, named "case, rate".

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("plot") from error
    cases = list(dict.fromkeys(line.partition(", ")[0] for line in lines))
    paths: list[Path] = []
    for chart, (figure, label) in CHARTS.items():
        picture = Figure(figsize=(6 * len(cases), 5), layout="constrained")
        FigureCanvasAgg(picture)
        panels = picture.subplots(1, len(cases), squeeze=False)[0]
        for case, panel in zip(cases, panels, strict=True):
            for name, points in _curves(lines, case, figure).items():
                panel.plot([x for x, _ in points], [y for _, y in points], "o-", label=name)
            panel.set(
                title=f"{case}-timeout case", xlabel="requests per second, target", ylabel=label
            )
            panel.set_xscale("log")
            if figure == "achieved":
                panel.set_yscale("log")
            panel.grid(visible=True, alpha=0.3)
        panels[-1].legend(fontsize="small")
        path = beside.with_name(f"{beside.stem}-{chart}.png")
        with whole_folder(path.parent) as folder:
            picture.savefig(folder / path.name, dpi=110)
        paths.append(path)
    return paths


def _curves(
    lines: Mapping[str, Sequence[Series]], case: str, figure: str
) -> dict[str, list[tuple[float, float]]]:
    curves: dict[str, list[tuple[float, float]]] = {}
    for line, sides in lines.items():
        if line.partition(", ")[0] == case:
            for series in sides:
                point = (series.median("target"), series.median(figure))
                curves.setdefault(series.side.name, []).append(point)
    return curves
