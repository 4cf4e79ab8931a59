"""What a loop may still hear from outside: sockets, signals, jobs, threads. Rank 4."""

from __future__ import annotations

import threading
from asyncio import Future
from collections.abc import Generator
from contextlib import contextmanager
from selectors import BaseSelector
from typing import Any
from weakref import WeakSet


class Outside:
    """Tells whether something that is no timer could make the loop go on.

    A registered file descriptor beyond the loop's own, a signal with a handler, a job in an
    executor, a thread that was started since. A child process shows as one or more of these, by
    its pipes and by the watcher that asyncio gives it. Idle workers of executors do not count,
    their jobs do.

    Args:
        selector: With nothing registered but what the loop needs for itself.
    """

    def __init__(self, selector: BaseSelector) -> None:
        self._selector = selector
        self._own_descriptors = len(selector.get_map())
        self._signals: set[int] = set()
        self._jobs: set[Future[Any]] = set()
        self._known = WeakSet(threading.enumerate())

    def may_come(self) -> bool:
        """Whether there is anything to wait for."""
        return (
            bool(self._jobs)
            or bool(self._signals)
            or len(self._selector.get_map()) > self._own_descriptors
            or (threading.active_count() > 1 and self._has_new_threads())
        )

    def _has_new_threads(self) -> bool:
        self._known.add(threading.current_thread())  # the loop's own is none
        return not self._known.issuperset(threading.enumerate())

    def heed(self, signal: int) -> None:
        """Count *signal*, which has a handler."""
        self._signals.add(signal)

    def ignore(self, signal: int) -> None:
        """Count *signal* no longer."""
        self._signals.discard(signal)

    def expect(self, job: Future[Any]) -> None:
        """Count *job* until it is done."""
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    @contextmanager
    def hiring(self) -> Generator[None]:
        """Threads started in this block are workers, which wait for jobs and not we for them."""
        before = set(threading.enumerate())
        yield
        self._known.update(each for each in threading.enumerate() if each not in before)
