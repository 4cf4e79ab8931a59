"""Charts as SVG that inherits its colours from the surrounding page. Rank 5.

Source: two chart types, lines and bars, with few ticks; `html` has the style. Hovering over a mark
shows its values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from aiowheel.jobs.report.html import shown

_WIDTH, _HEIGHT = 760, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 24, 10, 44
#: Number of colours of the page.
COLOURS = 7
#: Number of labels below a histogram; with more, they would touch.
MOST_LABELS = 14
_NEARLY = 1 - 1e-9  # tolerance for rounding errors of float sums and quotients
Points = Sequence[tuple[float, float]]  # a NaN y interrupts the line
Words = Callable[[float], str]


def line_chart(
    lines: Mapping[str, Points],
    *,
    x_label: str,
    y_label: str,
    x_text: Words,
    y_text: Words,
    log_x: bool = False,
) -> str:
    """Draw one line per name through its points.

    Args:
        lines: The points of each line, by name; colours repeat after seven lines.
        x_label: The label under the chart.
        y_label: The label left of the chart, for the quantity on the y axis, which begins at 0.
        x_text: Formats an x value.
        y_text: Formats a y value.
        log_x: Whether the x axis is logarithmic; all x are above 0 then.
    """
    points = [point for line in lines.values() for point in line if not math.isnan(point[1])]
    if not points:
        return '<p class="soft">None in this trace.</p>'
    xs = [x for x, _ in points]
    place_x = _log_scale(min(xs), max(xs)) if log_x else _scale(min(xs), max(xs))
    x_ticks = sorted(set(xs)) if log_x else round_ticks(min(xs), max(xs), 6)
    top = round_ticks(0, max(y for _, y in points), 4)
    marks = [
        _line(name, line, f"s{nth % COLOURS}", place_x, top[-1], x_text, y_text)
        for nth, (name, line) in enumerate(lines.items())
    ]
    ticks = [(place_x(x), x_text(x)) for x in x_ticks]
    return _frame(ticks, top, y_text, x_label, y_label, marks) + _legend(list(lines))


def bar_chart(
    edges: Sequence[str],
    bars: Mapping[str, Sequence[float]],
    *,
    x_label: str,
    y_label: str,
    y_text: Words,
) -> str:
    """Draw a histogram; *edges* are the labels of the bounds, one more than there are bars."""
    if not bars or not any(any(heights) for heights in bars.values()):
        return '<p class="soft">None in this trace.</p>'
    places = len(edges) - 1
    top = round_ticks(0, max(max(heights) for heights in bars.values()), 4)
    room = (_WIDTH - _LEFT - _RIGHT) / places
    width = 0.86 * room / len(bars)
    marks: list[str] = []
    for nth, (name, heights) in enumerate(bars.items()):
        for place, height in enumerate(heights):
            x = _LEFT + place * room + 0.07 * room + nth * width
            y = _y(height, top[-1])
            said = f"{name}: {edges[place]} to {edges[place + 1]}: {y_text(height)}"
            marks.append(
                f'<rect class="bar s{nth % COLOURS}" x="{x:.1f}" y="{y:.1f}" '
                f'width="{max(width - 1, 1):.1f}" height="{_y(0, top[-1]) - y:.1f}">'
                f"<title>{shown(said)}</title></rect>"
            )
    step = math.ceil(len(edges) / MOST_LABELS)
    ticks = [(_LEFT + at * room, edge) for at, edge in enumerate(edges) if at % step == 0]
    return _frame(ticks, top, y_text, x_label, y_label, marks) + _legend(list(bars))


def round_ticks(low: float, high: float, wanted: int) -> list[float]:
    """Return about *wanted* round numbers, at least two, from *low* or below to beyond *high*."""
    span = high - low
    if span <= 1e-9 * max(abs(low), abs(high)):  # practically one value
        span = abs(high)
    if span < 1e-100:
        span = 1.0
    power = 10 ** math.floor(math.log10(span / wanted))
    step = next(power * nth for nth in (1, 2, 5, 10) if power * nth * wanted >= span * _NEARLY)
    first = math.floor(low / step) * step
    count = max(1, math.ceil((high - first) / step * _NEARLY))
    return [first + step * nth for nth in range(count + 1)]


def _scale(low: float, high: float) -> Callable[[float], float]:
    ticks = round_ticks(low, high, 6)
    first, last = ticks[0], ticks[-1]
    return lambda x: _LEFT + (x - first) / (last - first) * (_WIDTH - _LEFT - _RIGHT)


def _log_scale(low: float, high: float) -> Callable[[float], float]:
    span = math.log(high / low) or 1.0
    inner = _WIDTH - _LEFT - _RIGHT - 40
    return lambda x: _LEFT + 20 + math.log(x / low) / span * inner


def _y(height: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - height / top * (_HEIGHT - _BOTTOM - _TOP)


def _line(
    name: str,
    line: Points,
    colour: str,
    place_x: Callable[[float], float],
    top: float,
    x_text: Words,
    y_text: Words,
) -> str:
    path: list[str] = []
    dots: list[str] = []
    pen = "M"
    for x, y in line:
        if math.isnan(y):
            pen = "M"
            continue
        at = f"{place_x(x):.1f}", f"{_y(y, top):.1f}"
        path.append(f"{pen}{at[0]} {at[1]}")
        said = f"{name}: {x_text(x)}: {y_text(y)}"
        dots.append(
            f'<circle class="dot" cx="{at[0]}" cy="{at[1]}" r="3">'
            f"<title>{shown(said)}</title></circle>"
        )
        pen = "L"
    return f'<g class="{colour}"><path class="curve" d="{"".join(path)}"/>{"".join(dots)}</g>'


def _frame(
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[float],
    y_text: Words,
    x_label: str,
    y_label: str,
    marks: Sequence[str],
) -> str:
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{shown(y_label)}">']
    for tick in y_ticks:
        y = _y(tick, y_ticks[-1])
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{shown(y_text(tick))}</text>'
        )
    for x, text in x_ticks:
        parts.append(
            f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">'
            f"{shown(text)}</text>"
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.extend(marks)
    parts.append(
        f'<text x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">{shown(x_label)}</text></svg>'
    )
    return "".join(parts)


def _legend(names: Sequence[str]) -> str:
    items = "".join(
        f'<li class="s{nth % COLOURS}"><i></i>{shown(name)}</li>' for nth, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'
