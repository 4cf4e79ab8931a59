"""What the commands over Spark jobs show: a bar on stderr, a table or JSON on stdout. Rank 5."""

import json
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_SECONDS = 0.3


class JobProgress:
    """A bar of Spark's tasks on stderr while a job lasts; nothing where stderr is no terminal.

    Args:
        what: What goes on, in a word.
    """

    def __init__(self, what: str) -> None:
        console = Console(stderr=True)
        self._bars = Bars(console=console, transient=True, disable=not console.is_terminal)
        self._bar = self._bars.add_task(f"{what}: starting Spark", total=None)
        self._what = what
        self._ended = threading.Event()
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        if self._watcher is not None:
            self._watcher.join()
        self._bars.stop()

    def watch(self, spark: "SparkSession") -> None:
        """Follow the stages of *spark* from now on."""
        if not self._bars.disable:
            self._watcher = threading.Thread(target=self._follow, args=(spark,), daemon=True)
            self._watcher.start()

    def _follow(self, spark: "SparkSession") -> None:
        try:
            tracker = spark.sparkContext.statusTracker()
            while not self._ended.wait(_POLL_SECONDS):
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                running = [stage for stage in stages if stage is not None]
                if running:
                    self._bars.update(
                        self._bar,
                        description=self._what,
                        total=sum(stage.numTasks for stage in running),
                        completed=sum(stage.numCompletedTasks for stage in running),
                    )
        except Exception:  # the session may end at any time: a bar is never worth a failure
            return


def print_json(value: object) -> None:
    """Print one JSON value on stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int = 0) -> None:
    """Print rows on stdout: a table on a terminal, aligned columns in a pipe.

    Args:
        headings: One a column.
        rows: As they are to be read.
        texts: Columns aligned to the left, from the first one on.
    """
    console = Console()
    if console.is_terminal:
        table = Table()
        for place, heading in enumerate(headings):
            table.add_column(heading, justify="left" if place < texts else "right")
        for row in rows:
            table.add_row(*map(Text, row))
        console.print(table)
        return
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for row in (headings, *rows):
        cells = [
            cell.ljust(width) if place < texts else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def print_lines(lines: Mapping[str, Any]) -> None:
    """Print names and values on stdout, one a line."""
    width = max(map(len, lines))
    for name, value in lines.items():
        print(f"{name:<{width}}  {value}")
