"""A handler of signals, set for a while. Rank 4."""

import contextlib
import signal
import threading
from collections.abc import Callable, Generator
from types import FrameType


@contextlib.contextmanager
def handled_by(
    handler: Callable[[int, FrameType | None], None], *numbers: signal.Signals
) -> Generator[None]:
    """Handle these signals with *handler* inside the block, then restore the former handlers.

    Nothing happens outside the main thread: only there can a handler be set.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
