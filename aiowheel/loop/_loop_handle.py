"""The handle that `call_later` of a wheel loop returns. Rank 3."""

from __future__ import annotations

from asyncio import TimerHandle as AsyncioTimerHandle
from collections.abc import Callable
from contextvars import Context
from traceback import StackSummary
from types import MethodType
from typing import Any, cast

from mypy_extensions import i64, mypyc_attr

from aiowheel._arguments import safe_repr
from aiowheel._types import Delay
from aiowheel._units import ns_to_seconds
from aiowheel.loop._debug_notes import DebugNotes, NoLoop, NotedHandle, callback_text
from aiowheel.timer._driver import TimerCounts
from aiowheel.timer._handle import CANCELLED, FIRED, WAITING, TimerHandle


@mypyc_attr(acyclic=True, free_list_len=1)
class LoopHandle(TimerHandle):
    """A `TimerHandle` for which `isinstance(handle, asyncio.TimerHandle)` is true.

    It is not a subclass of asyncio's handle, which is three times as large, and which the cyclic
    collector visits. docs/reference/loop.md lists the resulting differences.
    """

    __slots__ = ("_notes", "_when")

    def __init__(
        self,
        when: object,
        deadline: i64,
        delay: i64,
        callback: object,
        args: tuple[object, ...],
        context: Context | None,
    ) -> None:
        super().__init__(deadline, delay, callback, args, context)
        self._when = when  # as given; the deadline is rounded to nanoseconds
        self._notes: DebugNotes | None = None

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride] - no setter
        return AsyncioTimerHandle

    # asyncio's private names, for programs that read them.

    @property
    def _callback(self) -> object:
        return self._call()[0]

    @property
    def _cancelled(self) -> bool:
        return self.cancelled()

    @property
    def _source_traceback(self) -> StackSummary | None:
        return None if self._notes is None else self._notes.source_traceback

    @property
    def notes(self) -> DebugNotes | None:
        """The debug information; None outside debug mode."""
        return self._notes

    def note(self, notes: DebugNotes) -> None:
        """Store the debug information."""
        self._notes = notes

    def when(self) -> Any:  # compiled code with the type float would convert the int 12 to 12.0
        """Return the time on the scale of `loop.time()`, exactly as it was given."""
        return self._when

    def fired(self) -> bool:
        """Return whether the callback has run or is running."""
        notes = self._notes
        if self._state == WAITING and notes is not None:
            return notes.has_run  # in debug mode, asyncio's loop runs the callback after `fire`
        return super().fired()

    def touch(self, delay: Delay | None = None) -> bool:
        """Move the deadline to now + *delay*; see `TimerHandle.touch`."""
        self._arrive()
        moved = super().touch(delay)
        if moved:
            self._when = ns_to_seconds(self._deadline)
        return moved

    def reschedule(self, when: Delay) -> bool:
        """Move the deadline to *when*, as of `loop.time()`; see `TimerHandle.reschedule`."""
        self._arrive()
        moved = super().reschedule(when)
        if moved:
            self._when = when if isinstance(when, float) else ns_to_seconds(self._deadline)
        return moved

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, AsyncioTimerHandle):
            return NotImplemented
        return bool(cast(Any, self._when) < other.when())

    def __le__(self, other: object) -> bool:
        if not isinstance(other, AsyncioTimerHandle):
            return NotImplemented
        return bool(cast(Any, self._when) <= other.when())

    def __hash__(self) -> int:
        return hash(id(self))  # a compiled class with `<` does not inherit `__hash__`

    def cancel(self) -> bool:
        """Cancel the callback; return True exactly once, and only if it had not run. O(1).

        As on asyncio's handle, `cancelled()` is then true even if the callback has run, and a call
        from another thread is no error: after True, the callback will not run, and the loop's
        thread removes the handle from the wheel.
        """
        notes = self._notes
        if notes is None or self.cancelled():
            waiting = self._withdraw()
            self._state = CANCELLED
            return waiting
        handle = notes.ready
        if handle is None:
            handle = self.asyncio_handle()
        waiting = self._withdraw() or notes.withdraw()
        self._state = CANCELLED
        # Last, because the `repr` of the callback may raise. The text still has the callback, as
        # asyncio's `repr` in debug mode.
        notes.text = handle.cancelled_text()
        return waiting

    def _withdraw(self) -> bool:
        counts = self._counts
        if counts is None:
            return False
        driver = cast(TimerCounts, counts).driver
        if driver is None:  # the loop was closed before the handle was filed
            return self.leave_transit()
        if counts is driver.counts and not driver.runs_elsewhere():
            waiting = super().cancel()
            return waiting and not (driver.withdrawn and cast(Any, driver).was_withdrawn(self))
        return bool(cast(Any, driver).withdraw(self))

    # A handle armed by another thread waits in `_transit` until the loop's thread files it. Until
    # then, its counts are not those of the wheel.

    def enter_transit(self, counts: TimerCounts) -> None:
        """Count as pending before the loop's thread files the handle."""
        self._counts = counts

    def in_transit(self, counts: TimerCounts) -> bool:
        """Return whether the loop's thread has not filed the handle yet."""
        return self._counts is counts

    def leave_transit(self) -> bool:
        """Drop a handle that has not been filed; return True."""
        self._counts = None
        self.drop()
        return True

    def leave_wheel(self) -> None:
        """Leave the wheel after a cancellation by another thread; on the loop's thread."""
        super().cancel()

    def _arrive(self) -> None:
        counts = self._counts
        if counts is not None:
            driver = cast(TimerCounts, counts).driver
            if driver is not None and counts is not driver.counts:
                driver.check()
                cast(Any, driver).receive(self)

    def fire(self) -> None:
        notes = self._notes
        if notes is not None and notes.loop is not None:
            handle = self._asyncio_handle(notes.loop)
            self.forget()
            notes.hand_over(handle)
            return
        self._state = FIRED
        callback = cast(Callable[..., object], self._payload)
        args, context = self._args, self._context
        if context is None:
            context = Context()
        if type(args) is not tuple:
            context.run(callback, args)  # as in `TimerHandle.fire`
        elif not args:
            context.run(callback)
        else:
            context.run(callback, *args)
        self.forget()  # after an exception, the driver does this: its report has the callback

    def drop(self) -> None:
        super().drop()
        self._notes = None  # the notes refer to the loop

    def forget(self) -> None:
        """Drop every reference after the callback has run."""
        self._payload = None
        self._args = None
        self._context = None

    def text(self) -> str:
        """Return the callback as in asyncio's messages."""
        callback, args = self._call()
        try:
            return callback_text(callback, args, debug=self._notes is not None)
        except Exception:  # the `repr` of the callback raises
            return safe_repr(callback)

    def _call(self) -> tuple[Any, Any]:
        callback: Any = self._payload
        args: Any = self._args
        if callback is not None and type(args) is not tuple:
            return MethodType(callback, args), ()  # see `TimerHandle.__init__`
        return callback, cast(Any, args)

    def asyncio_handle(self) -> NotedHandle:
        """Return a handle of asyncio's own for the same callback, with the `repr` of debug mode."""
        return self._asyncio_handle(NoLoop(debug=True))

    def _asyncio_handle(self, loop: Any) -> NotedHandle:
        callback, args = self._call()
        context = self._context
        handle = NotedHandle(
            cast(Any, self._when), callback, args, loop, Context() if context is None else context
        )
        notes = self._notes
        handle._source_traceback = None if notes is None else notes.source_traceback  # type: ignore[attr-defined]
        return handle

    def __repr__(self) -> str:
        notes = self._notes
        if notes is not None and notes.text:
            return notes.text
        if notes is not None and notes.ready is not None:
            return repr(notes.ready)
        handle = self._asyncio_handle(NoLoop(debug=notes is not None))
        if self.cancelled():
            handle.cancel()
        return repr(handle)
