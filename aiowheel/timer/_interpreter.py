"""Fast functions to read the time, the thread and the context. Rank 1.

In the compiled build these functions are written in C (see hatch_c.py) and take a few nanoseconds.
The functions that they call are bound as defaults, because libraries that freeze the time replace
attributes of the `time` module, and a loop with a frozen clock never wakes up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import Context, copy_context
from threading import get_ident

from mypy_extensions import i64


def monotonic_ns(_read: Callable[[], int] = time.monotonic_ns) -> i64:
    """Return the monotonic clock's time in nanoseconds."""
    return i64(_read())


def monotonic_clock(_read: Callable[[], float] = time.monotonic) -> Callable[[], float]:
    """Return `time.monotonic` itself."""
    return _read


def thread_id(_read: Callable[[], int] = get_ident) -> i64:
    """Return the identifier of the calling thread, as `threading.get_ident`."""
    return i64(_read())


def in_empty_context(_copy: Callable[[], Context] = copy_context) -> bool:
    """Return whether the current context holds no variable."""
    return not _copy()


def captured_context() -> Context | None:
    """Return a copy of the current context, or None if it is empty, which saves 64 bytes."""
    return None if in_empty_context() else copy_context()
