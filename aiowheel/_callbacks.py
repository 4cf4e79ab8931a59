"""Checks of the callbacks that users pass in: aiowheel calls them and never awaits them. Rank 0."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from inspect import (
    CO_ASYNC_GENERATOR,
    CO_COROUTINE,
    CO_ITERABLE_COROUTINE,
    isasyncgenfunction,
    isgeneratorfunction,
)
from types import FunctionType, MethodType
from typing import Final

from aiowheel._arguments import safe_repr

#: Advice for a callback that reacts to an event.
START_A_TASK: Final = "to await in it, start a task from a plain function: asyncio.create_task(...)"
#: Advice for a callback that returns a value.
AWAIT_BEFORE: Final = "await what it needs beforehand and return that from a plain function"

_FLAGS: Final = CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE


def is_coroutine_function(function: object) -> bool:
    """Return whether calling *function* creates a coroutine or an asynchronous generator.

    In the compiled build, C code checks a plain function; see hatch_build.py.
    """
    if isinstance(function, FunctionType):
        return function.__code__.co_flags & _FLAGS != 0
    if isinstance(function, MethodType):
        return is_coroutine_function(function.__func__)
    if isinstance(function, partial):
        return is_coroutine_function(function.func)
    # Looked up on the type: a class whose instances have an async `__call__` is itself plain.
    call = getattr(type(function), "__call__", None)  # noqa: B004 - the value is needed
    return isinstance(call, FunctionType) and call.__code__.co_flags & _FLAGS != 0


def plain_callback(name: str, callback: object, advice: str) -> Callable[..., object]:
    """Return *callback* if it is callable and not a coroutine function.

    Args:
        name: The caller's name of the argument, for the error.
        callback: What the user passed.
        advice: What to do instead of passing a coroutine function.

    Raises:
        TypeError: *callback* is not callable, or is a coroutine function.
    """
    if not callable(callback):
        raise TypeError(f"{name} must be a plain function, got {safe_repr(callback)}")
    if is_coroutine_function(callback):
        raise TypeError(
            f"{name} must be a plain function, got the coroutine function "
            f"{safe_repr(callback)}; {advice}"
        )
    return callback


def called_or_awaited(name: str, function: object) -> Callable[..., object]:
    """Return *function* if it is a plain or a coroutine function.

    Args:
        name: The caller's name of the argument, for the error.
        function: What the user passed.

    Raises:
        TypeError: *function* is not callable, or is a generator function.
    """
    if not callable(function):
        raise TypeError(f"{name} must be callable, got {safe_repr(function)}")
    is_generator = isgeneratorfunction(function) and not is_coroutine_function(function)
    if is_generator or isasyncgenfunction(function):
        raise TypeError(
            f"{name} must be a plain or a coroutine function, got the generator function "
            f"{safe_repr(function)}, of which a call runs nothing; remove its yield"
        )
    return function


def refuse_coroutine(name: str, result: object, advice: str) -> None:
    """Close the coroutine that a plain function has returned, and raise.

    A task or another future is accepted, because it runs without an await.

    Args:
        name: The caller's name of the function, for the error.
        result: What the function returned.
        advice: What to do instead.

    Raises:
        TypeError: *result* is a coroutine.
    """
    if isinstance(result, Coroutine):
        result.close()
        raise TypeError(
            f"{name} must be a plain function, but it returned the coroutine {result!r}; {advice}"
        )
