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


@contextmanager
def hearing(signals: Iterable[signal.Signals], heard: Callable[[], object]) -> Generator[None]:
    """In the block, call *heard* on the loop when a signal comes; then its own handler.

    Only where the server has a handler for it, and in the main thread, which alone gets signals.
    """
    loop = get_running_loop()
    before: dict[int, Callable[[int, FrameType | None], object]] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        if not loop.is_closed():  # who never left the block left this handler behind
            loop.call_soon_threadsafe(heard)
        before[number](number, frame)

    if threading.current_thread() is threading.main_thread():
        for each in signals:
            handler = signal.getsignal(each)
            if callable(handler):  # not the system's own way, which we would stand in for
                before[each] = handler
                signal.signal(each, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, handler)
