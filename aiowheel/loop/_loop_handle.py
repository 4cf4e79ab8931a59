"""What a wheel loop's own `call_later` returns. Rank 3."""

from __future__ import annotations

from asyncio import TimerHandle as AsyncioTimerHandle
from contextvars import Context

from mypy_extensions import i64, mypyc_attr

from aiowheel.timer._handle import TimerHandle


@mypyc_attr(acyclic=True, free_list_len=1)
class LoopHandle(TimerHandle):
    """A `TimerHandle` that passes for asyncio's: `isinstance(handle, asyncio.TimerHandle)`.

    It is no subclass: asyncio's handle is three times as large, and the cyclic collector would
    visit a million of them. So `type(handle)` is another, comparisons are by identity, and the
    private attributes (`_when`, `_callback`, `_scheduled`, ...) are not asyncio's.
    """

    __slots__ = ("_source_traceback", "_when")

    def __init__(
        self,
        when: float,
        deadline: i64,
        callback: object,
        args: tuple[object, ...],
        context: Context | None,
    ) -> None:
        super().__init__(deadline, 0, callback, args, context)
        self._when = when  # as given, where the deadline is in whole nanoseconds
        self._source_traceback: object = None  # in debug mode, where it was made

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride] - no setter
        return AsyncioTimerHandle

    def when(self) -> float:
        """The time it was scheduled for, on the scale of `loop.time()`, exactly as given."""
        return self._when
