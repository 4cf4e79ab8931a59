"""A coroutine in which a simulation can raise an error at an await. Rank 4."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

from aiowheel.testing._deadlock import frames_of

T = TypeVar("T")

_ASYNCIO = tuple(folder + os.sep for folder in asyncio.__path__)


class Interruptible(Coroutine[Any, Any, T]):
    """A wrapper of a coroutine: `interrupt` makes its current await raise.

    The error is raised when the coroutine is resumed, and the awaited result is lost. The same
    happens when a task is cancelled at the moment when its result arrives. Awaits inside asyncio's
    own tools, such as locks, are not interrupted: these tools expect only cancellation there.
    """

    def __init__(self, inner: Coroutine[Any, Any, T]) -> None:
        self._inner = inner
        self._started = False
        self._error: BaseException | None = None

    def interrupt(self, error: BaseException) -> bool:
        """Raise *error* when the coroutine is resumed; return False if it cannot be interrupted."""
        frames = list(frames_of(self._inner)) if self._started else []
        if not frames:
            return False
        code = frames[-1].f_code
        if code.co_filename.startswith(_ASYNCIO) and code.co_name != "sleep":
            return False
        self._error = error
        return True

    def send(self, value: Any) -> Any:
        """Resume the coroutine, or raise the error in it."""
        self._started = True
        error, self._error = self._error, None
        if error is not None:
            return self._inner.throw(error)
        return self._inner.send(value)

    def throw(
        self,
        typ: Any,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
    ) -> Any:
        """Raise an exception in the coroutine; a pending error of `interrupt` is dropped."""
        self._error = None
        if val is None and tb is None:
            return self._inner.throw(typ)
        return self._inner.throw(typ, val, tb)

    def close(self) -> None:
        """Close the coroutine."""
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._inner.__await__()

    # `waiting_lines` reads these attributes for the text of a deadlock.

    @property
    def cr_frame(self) -> object:
        """The frame of the coroutine."""
        return getattr(self._inner, "cr_frame", None)

    @property
    def cr_await(self) -> object:
        """The object that the coroutine awaits."""
        return getattr(self._inner, "cr_await", None)
