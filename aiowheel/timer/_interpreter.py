"""Three questions that hot paths ask the interpreter: the time, the thread, the kind of function.

Rank 1. The build hook (hatch_build.py) answers them in C, where each costs a few nanoseconds instead
of a call through the interpreter. Names of the `time` module are hidden in defaults: libraries that
freeze the time replace module attributes, and a loop whose clock stands still never wakes up.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from functools import partial
from threading import get_ident
from types import FunctionType, MethodType
from typing import Final

from mypy_extensions import i64

_FLAGS: Final = (
    inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
)


def monotonic_ns(_read: Callable[[], int] = time.monotonic_ns) -> i64:
    """Return the monotonic clock's time in nanoseconds."""
    return i64(_read())


def monotonic_clock(_read: Callable[[], float] = time.monotonic) -> Callable[[], float]:
    """Return `time.monotonic` itself."""
    return _read


def thread_id(_read: Callable[[], int] = get_ident) -> i64:
    """Return the identifier of the calling thread, as `threading.get_ident`."""
    return i64(_read())


def is_coroutine_function(function: object) -> bool:
    """Return whether calling *function* makes a coroutine or an asynchronous generator."""
    if isinstance(function, FunctionType):
        return function.__code__.co_flags & _FLAGS != 0
    if isinstance(function, MethodType):
        return is_coroutine_function(function.__func__)
    if isinstance(function, partial):
        return is_coroutine_function(function.func)
    # A builtin has no such `__call__`, and neither has what cannot be called.
    call = getattr(type(function), "__call__", None)  # noqa: B004 - the method is looked at
    return isinstance(call, FunctionType) and call.__code__.co_flags & _FLAGS != 0


def check_plain(name: str, function: object) -> None:
    """Refuse what cannot be called, and a coroutine function, whose coroutine would never run.

    Raises:
        TypeError: *function* is either of the two.
    """
    if not callable(function):
        raise TypeError(f"{name} must be callable, got {function!r}")
    if is_coroutine_function(function):
        raise TypeError(
            f"{name} must be a plain callable, got the coroutine function {function!r}: nothing "
            f"would await its coroutine; pass a plain function that starts a task"
        )
