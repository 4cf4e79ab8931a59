"""Signal handlers that are set during a block. Rank 4."""

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

    Outside the main thread nothing happens, because only the main thread can set handlers.
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
