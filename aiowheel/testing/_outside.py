"""The sources of events outside a loop: sockets, signals, jobs, threads. Rank 4."""

from __future__ import annotations

import threading
from asyncio import Future, SubprocessTransport
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from selectors import BaseSelector
from typing import Any, Final
from weakref import WeakSet

#: The thread of a `TraceRecorder`, which calls no loop.
_RECORDER: Final = "aiowheel-trace"


def _is_idle_in_anyio(thread: threading.Thread) -> bool:
    """Return whether *thread* is a worker of `anyio.to_thread` without a job.

    anyio has no public call for this, and a worker stays idle for 10 seconds or more. In a version
    of anyio without the list, the worker counts as any other thread.
    """
    if type(thread).__module__ != "anyio._backends._asyncio":
        return False
    workers: deque[object] = getattr(thread, "idle_workers", deque())
    return thread in workers.copy()  # the loop of another thread may change its list


class Outside:
    """A record of the sources of events that are not timers and can make a loop's callbacks ready.

    The sources are registered file descriptors except those of the loop itself, signals with a
    handler, jobs in an executor, child processes until asyncio has seen their ends, and threads
    that were started after the loop, except those of recorders. Idle workers of executors and of
    anyio do not count; their jobs do.

    Args:
        selector: The loop's selector, in which only the loop's own descriptors are registered.
    """

    def __init__(self, selector: BaseSelector) -> None:
        self._selector = selector
        self._own_descriptors = len(selector.get_map())
        self._signals: set[int] = set()
        self._jobs: set[Future[Any]] = set()
        self._children = WeakSet[SubprocessTransport]()
        self._known = WeakSet(threading.enumerate())

    def may_come(self) -> bool:
        """Return whether an event may still come from outside."""
        return self.has_sources() or self.has_new_threads()

    def has_sources(self) -> bool:
        """Return whether there is a source of events other than a thread."""
        return (
            bool(self._jobs)
            or bool(self._signals)
            or len(self._selector.get_map()) > self._own_descriptors
            or any(child.get_returncode() is None for child in self._children)
        )

    def has_new_threads(self) -> bool:
        """Return whether a thread is alive that was started after the loop."""
        if threading.active_count() == 1:
            return False
        self._known.add(threading.current_thread())  # the loop's own thread does not count
        return any(
            thread not in self._known and thread.name != _RECORDER and not _is_idle_in_anyio(thread)
            for thread in threading.enumerate()
        )

    def add_signal(self, signal: int) -> None:
        """Count *signal*, which has got a handler."""
        self._signals.add(signal)

    def remove_signal(self, signal: int) -> None:
        """Stop counting *signal*."""
        self._signals.discard(signal)

    def add_job(self, job: Future[Any]) -> None:
        """Count *job* until it is done."""
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    def add_child(self, child: SubprocessTransport) -> None:
        """Count *child* until it has a return code."""
        self._children.add(child)

    @contextmanager
    def starting_workers(self) -> Generator[None]:
        """Do not count the threads that are started in this block, which are executor workers."""
        before = set(threading.enumerate())
        yield
        self._known.update(each for each in threading.enumerate() if each not in before)
