"""What SIGINT and SIGTERM do to a command: they end it by the door. Rank 5."""

import contextlib
import signal
import threading
from collections.abc import Generator
from types import FrameType

from aiowheel._signals import handled_by

_EARLY: list[int] = []


@contextlib.contextmanager
def signals_kept() -> Generator[None]:
    """Keep SIGINT and SIGTERM for a `signals_noted` inside the block.

    A signal ends a stream well; while its modules are imported it can only be kept.
    """
    _EARLY.clear()
    with handled_by(lambda number, _frame: _EARLY.append(number), signal.SIGINT, signal.SIGTERM):
        yield


@contextlib.contextmanager
def signals_noted() -> Generator[threading.Event]:
    """Let SIGINT and SIGTERM set an event inside the block, instead of raising anywhere.

    An exception in the middle of a call to Spark would leave its connection out of step.
    """
    noted = threading.Event()
    with handled_by(lambda _number, _frame: noted.set(), signal.SIGINT, signal.SIGTERM):
        if _EARLY:
            noted.set()
        yield noted


@contextlib.contextmanager
def terminated_like_interrupted() -> Generator[None]:
    """Let SIGTERM do inside the block what SIGINT does, so that temporary files go.

    A second one while that cleaning lasts is ignored.
    """

    def interrupt(_number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        handler = signal.getsignal(signal.SIGINT)  # asyncio's own, in a loop: it unwinds tasks
        if not callable(handler):  # a shell has what it runs in the background ignore SIGINT
            raise KeyboardInterrupt
        handler(signal.SIGINT, frame)

    with handled_by(interrupt, signal.SIGTERM):
        yield
