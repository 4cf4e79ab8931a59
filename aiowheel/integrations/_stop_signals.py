"""A callback for the signals that stop a server, beside the server's own handlers. Rank 4.

An ASGI server finishes the running requests before it ends the lifespan. Code that ends those
requests needs the signal earlier.
"""

from __future__ import annotations

import signal
import threading
from asyncio import Task, create_task, get_running_loop
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from aiowheel._arguments import safe_repr


def checked_signals(signals: Iterable[signal.Signals]) -> tuple[signal.Signals, ...]:
    """Return *signals* as a tuple.

    Raises:
        TypeError: *signals* is not a sequence of signals.
    """
    with suppress(TypeError):  # from a value that is not iterable, or not hashable
        found = tuple(signals)
        if signal.valid_signals().issuperset(found):
            return found
    raise TypeError(
        f"signals must be a sequence of signals such as signal.SIGTERM, got {safe_repr(signals)}"
    )


class _Handler:
    """A handler of one signal: it runs all callbacks, then the handler it has replaced.

    All blocks share one handler. With a chain of handlers, blocks that end in another order than
    they started would make the chain longer and longer.
    """

    def __init__(self, replaced: Callable[[int, FrameType | None], object]) -> None:
        self.replaced = replaced
        self.callbacks: list[Callable[[], object]] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        for callback in self.callbacks:
            callback()
        self.replaced(number, frame)


@contextmanager
def signal_listener(
    signals: Iterable[signal.Signals], callback: Callable[[], object]
) -> Generator[None]:
    """During the block, call *callback* on the loop when one of *signals* arrives.

    The earlier handler of the signal is called as well. Signals without a handler are left alone.
    Outside the main thread the block does nothing, because Python runs signal handlers only there.
    """
    loop = get_running_loop()
    entered: list[tuple[signal.Signals, _Handler]] = []

    def schedule() -> None:
        if not loop.is_closed():  # a block that was never left keeps its callback
            loop.call_soon_threadsafe(callback)

    if threading.current_thread() is threading.main_thread():
        for number in signals:
            current = signal.getsignal(number)
            if callable(current):  # the default action cannot be called from a handler
                handler = current if isinstance(current, _Handler) else _Handler(current)
                handler.callbacks.append(schedule)
                signal.signal(number, handler)
                entered.append((number, handler))
    try:
        yield
    finally:
        for number, handler in entered:
            handler.callbacks.remove(schedule)
            is_current = signal.getsignal(number) is handler
            if is_current and not handler.callbacks:
                signal.signal(number, handler.replaced)


@contextmanager
def task_at_signal(
    signals: Iterable[signal.Signals], function: Callable[[], Coroutine[Any, Any, None]]
) -> Generator[None]:
    """During the block, run the coroutine function in a task when one of *signals* arrives."""
    tasks: list[Task[None]] = []  # the loop keeps weak references to tasks only
    with signal_listener(signals, lambda: tasks.append(create_task(function()))):
        yield
