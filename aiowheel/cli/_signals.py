"""Handling of SIGINT and SIGTERM: a command ends with its cleanup. Rank 5."""

import contextlib
import signal
import threading
from collections.abc import Generator
from types import FrameType

from aiowheel._signals import handled_by

_EARLY: list[int] = []


@contextlib.contextmanager
def signals_kept() -> Generator[None]:
    """Record SIGINT and SIGTERM, for a `signals_noted` inside the block.

    Only `signals_noted` can end a stream cleanly. This block covers the imports before it.
    """
    _EARLY.clear()
    with handled_by(lambda number, _frame: _EARLY.append(number), signal.SIGINT, signal.SIGTERM):
        yield


@contextlib.contextmanager
def signals_noted() -> Generator[threading.Event]:
    """Make SIGINT and SIGTERM set an event during the block, in place of raising an exception.

    An exception in the middle of a call to Spark would leave its connection in a broken state.
    """
    noted = threading.Event()
    with handled_by(lambda _number, _frame: noted.set(), signal.SIGINT, signal.SIGTERM):
        if _EARLY:
            noted.set()
        yield noted


@contextlib.contextmanager
def terminated_like_interrupted() -> Generator[None]:
    """Make SIGTERM act like SIGINT during the block, so that temporary files are removed.

    A second SIGTERM is ignored, so that it does not interrupt the cleanup.
    """

    def interrupt(_number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        handler = signal.getsignal(signal.SIGINT)  # in a loop: asyncio's handler, which cancels
        if not callable(handler):  # background jobs of a shell ignore SIGINT
            raise KeyboardInterrupt
        handler(signal.SIGINT, frame)

    with handled_by(interrupt, signal.SIGTERM):
        yield
