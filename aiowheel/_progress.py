"""The progress of a command: a bar on stderr with the time left. Rank 5; needs the `cli` extra."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress as Bars

from aiowheel._printable import printable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_REFRESHES_PER_SECOND = 2  # few, because a benchmark shows a bar while it measures
_POLL_SECONDS = 0.3


class Progress:
    """A bar on stderr while a `with` block runs; nothing is shown if stderr is not a terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._bars = Bars(
            console=console,
            transient=True,
            disable=not console.is_terminal,
            refresh_per_second=_REFRESHES_PER_SECOND,
        )

    def __enter__(self) -> Self:
        if not self._bars.disable:
            self._bars.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if not self._bars.disable:  # rich before 14.3 would print an empty line
            self._bars.stop()

    def show(self, what: str, done: int = 0, of: int | None = None) -> None:
        """Show the current work, and how much of it is done.

        Args:
            what: The current work, in a few words.
            done: The number of parts that are done.
            of: The number of all parts, from which the time left is estimated; None begins a bar of
                unknown length in place of the previous one.
        """
        text = escape(printable(what))  # it may have the name of a folder
        bars = self._bars.task_ids
        if bars and of is not None:
            self._bars.update(bars[0], description=text, completed=done, total=of)
            return
        for bar in bars:
            self._bars.remove_task(bar)
        self._bars.add_task(text, completed=done, total=of)

    def each(self, items: Iterable[T], what: str, of: int) -> Iterable[T]:
        """Return an iterable over *items* that counts them; no cost if no bar is shown."""
        if self._bars.disable:
            return items
        self.show(what)
        return self._bars.track(items, of, task_id=self._bars.task_ids[0])

    @contextmanager
    def tasks_of(self, spark: SparkSession, what: str) -> Generator[None]:
        """Show the tasks of Spark's active stages while the block runs."""
        self.show(what)
        if self._bars.disable:
            yield
            return
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(spark, what, ended), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def _watch(self, spark: SparkSession, what: str, ended: threading.Event) -> None:
        try:
            tracker = spark.sparkContext.statusTracker()
            while not ended.wait(_POLL_SECONDS):
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                running = [stage for stage in stages if stage is not None]
                if running:
                    done = sum(stage.numCompletedTasks for stage in running)
                    self.show(what, done, sum(stage.numTasks for stage in running))
        except Exception:  # the Spark session may end at any time; a bar must not fail
            return
