"""A coroutine in which a simulation can raise an error at an await. Rank 4."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class Interruptible(Coroutine[Any, Any, T]):
    """A wrapper of a coroutine: `interrupt` makes its present await raise.

    The error is raised where the coroutine is resumed, in the place of the result that it awaited,
    which is lost: the same happens when a task is cancelled in the moment in which its result
    arrives.
    """

    def __init__(self, inner: Coroutine[Any, Any, T]) -> None:
        self._inner = inner
        self._started = False
        self._error: BaseException | None = None

    def interrupt(self, error: BaseException) -> bool:
        """Raise *error* at the next resumption; return False before the first await."""
        if self._started:
            self._error = error
        return self._started

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
        """Raise an exception in the coroutine; an error that waits is dropped."""
        self._error = None
        if val is None and tb is None:
            return self._inner.throw(typ)
        return self._inner.throw(typ, val, tb)

    def close(self) -> None:
        """Close the coroutine."""
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._inner.__await__()

    # What a deadlock's text reads: where the coroutine stands.

    @property
    def cr_frame(self) -> object:
        """The frame of the coroutine."""
        return getattr(self._inner, "cr_frame", None)

    @property
    def cr_await(self) -> object:
        """What the coroutine awaits."""
        return getattr(self._inner, "cr_await", None)
