"""Calls from another thread, in lock-step with the loop's thread. Rank 4.

Two threads that run freely interleave differently each time. Here the loop's thread waits while the
other thread makes a call, so that a run with such calls can be repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar, cast

T = TypeVar("T")

_Answer = tuple[object, BaseException | None]


class OtherThread:
    """A thread that makes one call at a time, while its caller waits."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._answers: SimpleQueue[_Answer] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="aiowheel simulation", daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], T]) -> T:
        """Call *function* in the other thread; return its result or raise its exception."""
        self._calls.put(function)
        result, error = self._answers.get()
        if error is not None:
            raise error
        return cast(T, result)

    @property
    def alive(self) -> bool:
        """Whether the thread can make calls; in a forked process it no longer exists."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while True:
            function: Any = self._calls.get()
            try:
                answer: _Answer = (function(), None)
            except BaseException as error:  # raised in the caller's thread instead
                answer = (None, error)
            del function  # a reference would keep the objects of the last call alive
            self._answers.put(answer)
            del answer


_threads: list[OtherThread] = []  # one thread serves all simulations of a process


def call_in_other_thread(function: Callable[[], T]) -> T:
    """Call *function* in another thread while this thread waits for its end."""
    if not _threads or not _threads[-1].alive:
        _threads[:] = [OtherThread()]
    return _threads[-1].call(function)
