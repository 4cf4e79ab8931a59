"""The sources of events outside a loop: sockets, signals, jobs, threads. Rank 4."""

from __future__ import annotations

import threading
from asyncio import Future
from collections.abc import Generator
from contextlib import contextmanager
from selectors import BaseSelector
from typing import Any
from weakref import WeakSet


class Outside:
    """A record of the sources of events that are not timers and can make a loop's callbacks ready.

    These are registered file descriptors beyond the loop's own, signals with a handler, jobs in an
    executor, and threads started after the loop. A child process counts by its pipes and by the
    watcher that asyncio gives it. Idle workers of executors do not count; their jobs do.

    Args:
        selector: The loop's selector, in which only the loop's own descriptors are registered.
    """

    def __init__(self, selector: BaseSelector) -> None:
        self._selector = selector
        self._own_descriptors = len(selector.get_map())
        self._signals: set[int] = set()
        self._jobs: set[Future[Any]] = set()
        self._known = WeakSet(threading.enumerate())

    def may_come(self) -> bool:
        """Return whether an event may still come from outside."""
        return (
            bool(self._jobs)
            or bool(self._signals)
            or len(self._selector.get_map()) > self._own_descriptors
            or (threading.active_count() > 1 and self._has_new_threads())
        )

    def _has_new_threads(self) -> bool:
        self._known.add(threading.current_thread())  # the loop's own thread is no source
        return not self._known.issuperset(threading.enumerate())

    def heed(self, signal: int) -> None:
        """Count *signal*, which has a handler now."""
        self._signals.add(signal)

    def ignore(self, signal: int) -> None:
        """Stop counting *signal*."""
        self._signals.discard(signal)

    def expect(self, job: Future[Any]) -> None:
        """Count *job* until it is done."""
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    @contextmanager
    def hiring(self) -> Generator[None]:
        """Count no thread that is started in this block: it is a worker of an executor."""
        before = set(threading.enumerate())
        yield
        self._known.update(each for each in threading.enumerate() if each not in before)
