"""Methods of compiled classes that callers must recognize as coroutine functions. Rank 0.

This module is interpreted: a compiled function cannot be marked.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, object]])


def coroutine_function(function: F) -> F:
    """Return a coroutine function for one that is compiled, or checks its arguments at the call.

    Frameworks that call hooks, such as `unittest.IsolatedAsyncioTestCase.addAsyncCleanup`, await
    the result only if `inspect.iscoroutinefunction` returns True.
    """

    @wraps(function)
    def call(*args: Any, **options: Any) -> Coroutine[Any, Any, object]:
        return function(*args, **options)

    marked: Any = call
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(marked)
    else:  # the flag alone does not change the call, as for `types.coroutine`
        code = marked.__code__
        marked.__code__ = code.replace(co_flags=code.co_flags | inspect.CO_COROUTINE)
    return cast(F, marked)
