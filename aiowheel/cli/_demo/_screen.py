"""Where the demo speaks: results on stdout, progress on stderr. Rank 5; needs the `cli` extra."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator

from rich.console import Console

from aiowheel._progress import Progress

ShowDone = Callable[[int, int], None]  #: called with what is done, and all of it

_PIPE_WIDTH = 110  # columns for tables when nobody says how wide the screen is
_TEXT_WIDTH = 100


class Screen:
    """Prints paragraphs and tables, and shows how far a part has come.

    Attributes:
        console: Standard output, without markup; quiet when a JSON object is to be all of it.
    """

    def __init__(self, *, quiet: bool) -> None:
        width = None if sys.stdout.isatty() else _PIPE_WIDTH
        self.console = Console(markup=False, highlight=False, quiet=quiet, width=width)
        self._notices = Console(stderr=True, markup=False)

    def heading(self, text: str) -> None:
        """Print the heading of a part."""
        self.console.print()
        self.console.print(text, style="bold")

    def paragraph(self, text: str) -> None:
        """Print wrapped text."""
        self.console.print(text, width=min(_TEXT_WIDTH, self.console.width))

    def line(self, text: str) -> None:
        """Print one line, however long it is: a path is to be copied whole."""
        self.console.print(text, soft_wrap=True)

    def notice(self, text: str) -> None:
        """Print a line on stderr."""
        self._notices.print(text, soft_wrap=True)

    @contextlib.contextmanager
    def working(self, what: str) -> Generator[ShowDone, None, None]:
        """Show a bar on a terminal, a line elsewhere; call the result as it goes."""
        if not self._notices.is_terminal:
            self.notice(f"{what} ...")
        with Progress() as progress:
            progress.show(what)
            yield lambda done, of: progress.show(what, done, of)
