"""How far a command is: a bar on stderr, with the time left. Rank 5; needs the `cli` extra."""

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

_REFRESHES_PER_SECOND = 2  # a benchmark shows one while it measures
_POLL_SECONDS = 0.3


class Progress:
    """A bar on stderr while a `with` block runs; nothing where stderr is no terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._bars = Bars(
            console=console,
            transient=True,
            disable=not console.is_terminal,
            refresh_per_second=_REFRESHES_PER_SECOND,
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._bars.stop()

    def show(self, what: str, done: int = 0, of: int | None = None) -> None:
        """Show *what* goes on, and how much of it is done.

        Args:
            what: In a few words.
            done: Parts that are done.
            of: All parts, from which the time left is estimated; None begins a bar of unknown
                length in place of the one before.
        """
        text = escape(printable(what))  # it may name a folder
        bars = self._bars.task_ids
        if bars and of is not None:
            self._bars.update(bars[0], description=text, completed=done, total=of)
            return
        for bar in bars:
            self._bars.remove_task(bar)
        self._bars.add_task(text, completed=done, total=of)

    def each(self, items: Iterable[T], what: str, of: int) -> Iterable[T]:
        """Pass *items* on, and count them; costs nothing where nothing is shown."""
        if self._bars.disable:
            return items
        self.show(what)
        return self._bars.track(items, of, task_id=self._bars.task_ids[0])

    @contextmanager
    def tasks_of(self, spark: SparkSession, what: str) -> Generator[None]:
        """Show the tasks of the stages that run, while the block runs."""
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
        except Exception:  # the session may end at any time: a bar is never worth a failure
            return
