"""The output of the demo: results on stdout, progress on stderr. Needs the `cli` extra."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator

from rich.console import Console

from aiowheel._progress import Progress

ShowDone = Callable[[int, int], None]  #: called with the number of finished items and of all items

_PIPE_WIDTH = 110  # columns for tables if stdout is not a terminal
_TEXT_WIDTH = 100


class Screen:
    """Prints paragraphs and tables, and shows the progress of a part.

    Args:
        quiet: Whether to print nothing on stdout, which is then free for a JSON object.

    Attributes:
        console: The console of standard output, without markup.
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
        """Print one line without wrapping, so that a path can be copied."""
        self.console.print(text, soft_wrap=True)

    def notice(self, text: str) -> None:
        """Print a line on stderr."""
        self._notices.print(text, soft_wrap=True)

    @contextlib.contextmanager
    def working(self, what: str) -> Generator[ShowDone, None, None]:
        """Show a progress bar on a terminal, or a line elsewhere; yield its update function."""
        if not self._notices.is_terminal:
            self.notice(f"{what} ...")
        with Progress() as progress:
            progress.show(what)
            yield lambda done, of: progress.show(what, done, of)
