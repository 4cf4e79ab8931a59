"""Hearing of the signals that end a server, beside the server. Rank 4.

An ASGI server waits for the requests under way before it ends the lifespan: whoever ends them must
have heard of the signal earlier.
"""

from __future__ import annotations

import signal
import threading
from asyncio import get_running_loop
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from types import FrameType


class _Ear:
    """The handler of one signal, for everybody who hears of it.

    One for all of them, and not one behind the other: blocks that are left in another order than
    they were entered would make that chain longer and longer.
    """

    def __init__(self, before: Callable[[int, FrameType | None], object]) -> None:
        self.before = before
        self.hearers: list[Callable[[], object]] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        for hear in self.hearers:
            hear()
        self.before(number, frame)


@contextmanager
def hearing(signals: Iterable[signal.Signals], heard: Callable[[], object]) -> Generator[None]:
    """In the block, call *heard* on the loop when a signal comes; then its own handler.

    Only where the server has a handler for it, and in the main thread, which alone gets signals.
    """
    loop = get_running_loop()
    ears: list[tuple[signal.Signals, _Ear]] = []

    def hear() -> None:
        if not loop.is_closed():  # who never left the block is still among the hearers
            loop.call_soon_threadsafe(heard)

    if threading.current_thread() is threading.main_thread():
        for each in signals:
            handler = signal.getsignal(each)
            if callable(handler):  # not the system's own way, which we would stand in for
                ear = handler if isinstance(handler, _Ear) else _Ear(handler)
                ear.hearers.append(hear)
                signal.signal(each, ear)
                ears.append((each, ear))
    try:
        yield
    finally:
        for number, ear in ears:
            ear.hearers.remove(hear)
            still_there = signal.getsignal(number) is ear
            if still_there and not ear.hearers:
                signal.signal(number, ear.before)
