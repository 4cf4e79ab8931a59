"""What a wheel loop's own `call_later` returns. Rank 3."""

from __future__ import annotations

from asyncio import TimerHandle as AsyncioTimerHandle
from contextvars import Context
from traceback import StackSummary
from types import MethodType
from typing import Any, Final, cast

from mypy_extensions import i64, mypyc_attr

from aiowheel._units import ns_to_seconds
from aiowheel.loop._watched import NoLoop, Watched, callback_words
from aiowheel.loop._watched import TimerHandle as TwinHandle
from aiowheel.timer._driver import named
from aiowheel.timer._handle import TimerHandle

_CANCELLED: Final = -1  # in _filed


@mypyc_attr(acyclic=True, free_list_len=1)
class LoopHandle(TimerHandle):
    """A `TimerHandle` that passes for asyncio's: `isinstance(handle, asyncio.TimerHandle)`.

    It is no subclass: asyncio's handle is three times as large, and the cyclic collector would
    visit a million of them. What does not hold for that reason stands in docs/reference/loop.md.
    """

    __slots__ = ("_watched", "_when")

    def __init__(
        self,
        when: float,
        deadline: i64,
        delay: i64,
        callback: object,
        args: tuple[object, ...],
        context: Context | None,
    ) -> None:
        super().__init__(deadline, delay, callback, args, context)
        self._when = when  # as given, where the deadline is in whole nanoseconds
        self._watched: Watched | None = None  # notes of debug mode

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride] - no setter
        return AsyncioTimerHandle

    # asyncio's names, for those who look behind its handles: tests do.

    @property
    def _callback(self) -> object:
        return self._call()[0]

    @property
    def _cancelled(self) -> bool:
        return self.cancelled()

    @property
    def _source_traceback(self) -> StackSummary | None:
        return None if self._watched is None else self._watched.source_traceback

    def when(self) -> float:
        """The time it is scheduled for, on the scale of `loop.time()`, exactly as given."""
        return self._when

    def touch(self, delay: object = None) -> bool:
        moved = super().touch(delay)
        if moved:
            self._when = ns_to_seconds(self._deadline)
        return moved

    def reschedule(self, when: object) -> bool:
        moved = super().reschedule(when)
        if moved:
            self._when = when if isinstance(when, float) else ns_to_seconds(self._deadline)
        return moved

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, AsyncioTimerHandle):
            return NotImplemented
        return self._when < other.when()

    def __le__(self, other: object) -> bool:
        if not isinstance(other, AsyncioTimerHandle):
            return NotImplemented
        return self._when <= other.when()

    def __hash__(self) -> int:
        return hash(id(self))  # a class with `<` does not inherit it once it is compiled

    def cancel(self) -> bool:
        """Withdraw the callback; True exactly once, and only if it was still waiting. O(1).

        As on asyncio's handle, `cancelled()` is true from then on, even if the callback has run.
        """
        watched = self._watched
        if watched is not None and not self.cancelled():
            twin = watched.ready
            if twin is None:
                twin = self.likeness()
            twin.cancel()
            watched.text = repr(twin)  # names the callback still, as asyncio's in debug mode
            waiting = super().cancel() or watched.withdraw()
        else:
            waiting = super().cancel()
        self._filed = _CANCELLED
        return waiting

    def fire(self) -> None:
        watched = self._watched
        if watched is not None and watched.loop is not None:
            twin = self._twin(watched.loop)
            self.forget()
            watched.hand_over(twin)
            return
        callback, args = self._payload, self._args
        try:
            super().fire()
        except BaseException:  # whoever reports it names them, and lets go of them
            self._payload, self._args = callback, args
            raise

    def drop(self) -> None:
        super().drop()
        self._watched = None  # which refers to the loop

    def forget(self) -> None:
        """Let go of everything; the handle has had its turn."""
        self._payload = None
        self._args = None
        self._context = None

    def words(self) -> str:
        """The callback as asyncio's messages name it."""
        callback, args = self._call()
        try:
            return callback_words(callback, args, debug=self._watched is not None)
        except Exception:  # its `repr` raises
            return named(callback)

    def _call(self) -> tuple[Any, Any]:
        callback: Any = self._payload
        args: Any = self._args
        if callback is not None and type(args) is not tuple:
            return MethodType(callback, args), ()  # a bound method is kept as its two halves
        return callback, cast(Any, args)

    def likeness(self) -> TwinHandle:
        """A handle of asyncio's own with the `repr` of debug mode, for when this one has let go."""
        return self._twin(NoLoop(debug=True))

    def _twin(self, loop: Any) -> TwinHandle:
        """A handle of asyncio's own for the same callback: to run on *loop*, or for its words."""
        callback, args = self._call()
        context = self._context
        twin = TwinHandle(
            self._when, callback, args, loop, Context() if context is None else context
        )
        twin.watched = None
        watched = self._watched
        twin._source_traceback = None if watched is None else watched.source_traceback  # type: ignore[attr-defined]
        return twin

    def __repr__(self) -> str:
        watched = self._watched
        if watched is not None and watched.text:
            return watched.text
        if watched is not None and watched.ready is not None:
            return repr(watched.ready)
        twin = self._twin(NoLoop(debug=watched is not None))
        if self.cancelled():
            twin.cancel()
        return repr(twin)
