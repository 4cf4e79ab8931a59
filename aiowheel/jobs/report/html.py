"""An HTML page of figures in one file: no script, no network, light and dark. Rank 5.

Source: plain HTML with inline style. All text is escaped, because names and keys are user input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from aiowheel._printable import printable

_STYLE = """\
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5b6576; --line: #dde1e8;
  --paper: #fff; --card: #f5f7fa; --c0: #0067a5; --c1: #c8500a; --c2: #00805a; --c3: #a8457f;
  --c4: #9a6a00; --c5: #2f7fa8; --c6: #5a4fcf; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf1; --soft: #9aa5b8; --line: #303a4b;
  --paper: #12161e; --card: #1b212c; --c0: #58b4ee; --c1: #ff9757; --c2: #3fcf9f; --c3: #ec93c4;
  --c4: #f0b93a; --c5: #86cdf0; --c6: #a99fff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 66rem; padding: 2rem 1.25rem 4rem; color: var(--ink);
  background: var(--paper); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .25rem; }
p { margin: .25rem 0 .75rem; max-width: 46rem; }
.soft, figcaption { color: var(--soft); }
figcaption { font-size: .85rem; }
dl.origin { font-size: .85rem; margin: .5rem 0 0; }
dl.origin div { display: flex; gap: .5rem; }
dl.origin dt { flex: none; width: 6.5rem; }
dl.origin dd { font-size: inherit; overflow-wrap: anywhere; }
dl.cards { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.25rem 0; }
dl.cards div { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .6rem .9rem; min-width: 9rem; }
dt { color: var(--soft); font-size: .85rem; }
dd { margin: 0; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; margin: .75rem 0; }
th, td { text-align: left; padding: .35rem .5rem; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td { overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
th.n, td.n { text-align: right; font-variant-numeric: tabular-nums; }
td.n { white-space: nowrap; }
tr.best td { background: var(--card); font-weight: 600; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .75rem 1rem; overflow-x: auto; }
figure { margin: .75rem 0; }
svg { display: block; width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--soft); }
.grid { stroke: var(--line); } .curve { fill: none; stroke-width: 2; }
.s0 { --s: var(--c0); } .s1 { --s: var(--c1); } .s2 { --s: var(--c2); } .s3 { --s: var(--c3); }
.s4 { --s: var(--c4); } .s5 { --s: var(--c5); } .s6 { --s: var(--c6); }
.curve { stroke: var(--s); } .dot, .bar { fill: var(--s); }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; font-size: .85rem; padding: 0;
  margin: .25rem 0; list-style: none; }
.legend i { display: inline-block; width: .8em; height: .8em; border-radius: .15em;
  background: var(--s); margin-right: .45em; }
/* A phone: tables and charts keep a size that can be read, and scroll by themselves. */
@media (max-width: 40rem) {
  body { padding: 1rem .75rem 2rem; }
  figure { overflow-x: auto; } svg { min-width: 34rem; }
  .wide table { width: auto; min-width: 100%; } td { overflow-wrap: normal; }
  dl.cards { display: grid; grid-template-columns: 1fr 1fr; gap: .5rem; }
  dl.cards div { min-width: 0; padding: .5rem .6rem; } dl.cards dd { font-size: 1.15rem; }
  dl.origin div { display: block; margin-bottom: .25rem; }
}
"""


def shown(text: object) -> str:
    """Escape a text for HTML; characters that are not printable are escaped as in Python."""
    return escape(printable(text))


class Page:
    """A page, built from top to bottom.

    Args:
        title: The headline.
        lead: A sentence about the content.
    """

    def __init__(self, title: str, lead: str) -> None:
        self._title = title
        self._parts = [f'<h1>{shown(title)}</h1>\n<p class="soft">{shown(lead)}</p>']

    def origin(self, lines: Mapping[str, str]) -> None:
        """Add the origin of the figures, by name, in small type."""
        told = "".join(
            f"<div><dt>{shown(name)}</dt><dd>{shown(text)}</dd></div>"
            for name, text in lines.items()
        )
        self._parts.append(f'<dl class="origin">{told}</dl>')

    def cards(self, figures: Iterable[tuple[str, str]]) -> None:
        """Add the few most important figures, by name."""
        cards = "".join(
            f"<div><dt>{shown(name)}</dt><dd>{shown(value)}</dd></div>" for name, value in figures
        )
        self._parts.append(f'<dl class="cards">{cards}</dl>')

    def section(self, title: str, text: str = "") -> None:
        """Start a section."""
        self._parts.append(f"<h2>{shown(title)}</h2>")
        if text:
            self._parts.append(f'<p class="soft">{shown(text)}</p>')

    def figure(self, svg: str, caption: str) -> None:
        """Add a chart of `charts`, which escapes its texts."""
        self._parts.append(f"<figure>{svg}<figcaption>{shown(caption)}</figcaption></figure>")

    def code(self, line: str) -> None:
        """Add a line of code to paste."""
        self._parts.append(f"<pre><code>{shown(line)}</code></pre>")

    def table(
        self,
        headings: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        texts: int = 0,
        best: int | None = None,
    ) -> None:
        """Add a table; its first *texts* columns are text, the others are numbers.

        Args:
            headings: One per column.
            rows: The formatted cells.
            texts: Number of columns aligned to the left.
            best: The index of the row to highlight.
        """
        if not rows:
            self._parts.append('<p class="soft">None in this trace.</p>')
            return
        marks = ["" if place < texts else ' class="n"' for place in range(len(headings))]
        head = "".join(
            f"<th{mark}>{shown(text)}</th>" for mark, text in zip(marks, headings, strict=True)
        )
        body = "".join(
            ('<tr class="best">' if number == best else "<tr>")
            + "".join(
                f"<td{mark}>{shown(cell)}</td>" for mark, cell in zip(marks, row, strict=True)
            )
            + "</tr>"
            for number, row in enumerate(rows)
        )
        self._parts.append(
            f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    def save(self, path: Path) -> Path:
        """Write the page to *path*."""
        html = (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{shown(self._title)}</title>\n<style>\n{_STYLE}</style></head>\n<body>\n"
            + "\n".join(self._parts)
            + "\n</body></html>\n"
        )
        path.write_text(html, encoding="utf-8", errors="backslashreplace")
        return path
