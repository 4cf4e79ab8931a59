"""Recording the deadlines of a timer together with the operations of its purgatories. Rank 4.

Source: a wrapper around the timer, so that a timer without recording pays no cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context
from typing import TypeVar, TypeVarTuple, Unpack, overload

from aiowheel._arguments import checked_str, safe_repr
from aiowheel._callbacks import START_A_TASK, plain_callback
from aiowheel._types import Delay
from aiowheel._units import FOREVER, clock_to_ns, delay_to_ns
from aiowheel.purgatory import Outcome
from aiowheel.timer import Timeout, Timer, TimerHandle
from aiowheel.trace.recorder import TraceRecorder

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class RecordedTimer:
    """A wrapper of a timer that records a row for each call when the call is over.

    ```python
    recorded = RecordedTimer(timer, recorder)
    recorded.call_later(30.0, close, connection)
    async with recorded.timeout(5.0):
        ...
    ```

    In a row, the purgatory is *name* and the kind is the callback's name, "timeout" or "sleep". The
    outcome is "expired" if the deadline passed, "cancelled" if it was cancelled, and "completed" if
    a block ended within its timeout. Deadlines still pending when the timer is closed have no row.

    Args:
        timer: An open timer; the caller remains responsible for closing it.
        recorder: The recorder of the rows.
        name: The name of this timer in the trace.

    Cost: about one microsecond per call more than the timer itself.
    """

    def __init__(self, timer: Timer, recorder: TraceRecorder, name: str = "timer") -> None:
        if not isinstance(timer, Timer):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
            raise TypeError(f"timer must be a Timer, got {safe_repr(timer)}")
        if not isinstance(recorder, TraceRecorder):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
            raise TypeError(f"recorder must be a TraceRecorder, got {safe_repr(recorder)}")
        self._timer = timer
        self._recorder = recorder
        self._name = checked_str("name", name)

    def call_later(
        self,
        delay: Delay,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> RecordedHandle:
        """Schedule like `Timer.call_later`."""
        ending = RecordedHandle(self, callback, args)
        return ending.armed(self._timer.call_later(delay, ending.run, context=context))

    def call_at(
        self,
        when: Delay,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> RecordedHandle:
        """Schedule like `Timer.call_at`."""
        ending = RecordedHandle(self, callback, args)
        return ending.armed(self._timer.call_at(when, ending.run, context=context))

    @overload
    async def sleep(self, delay: Delay) -> None: ...

    @overload
    async def sleep(self, delay: Delay, result: T) -> T: ...

    async def sleep(self, delay: Delay, result: object = None) -> object:
        """Sleep like `Timer.sleep`."""
        created = self.now_ns()
        deadline = min(created + max(0, delay_to_ns("delay", delay)), FOREVER)
        try:
            value = await self._timer.sleep(delay, result)
        except asyncio.CancelledError:
            self.note("sleep", created, deadline, Outcome.CANCELLED)
            raise
        self.note("sleep", created, deadline, Outcome.EXPIRED)
        return value

    def timeout(self, delay: Delay | None) -> AbstractAsyncContextManager[Timeout]:
        """Return a context manager like `Timer.timeout`, usable for one `async with`."""
        return self._recorded(self.now_ns(), self._timer.timeout(delay))

    def timeout_at(self, when: Delay | None) -> AbstractAsyncContextManager[Timeout]:
        """Return a context manager like `Timer.timeout_at`, usable for one `async with`."""
        return self._recorded(self.now_ns(), self._timer.timeout_at(when))

    @asynccontextmanager
    async def _recorded(self, created: int, block: Timeout) -> AsyncGenerator[Timeout]:
        async with block:
            try:
                yield block
            finally:
                when = block.when()
                deadline = FOREVER if when is None else delay_to_ns("when", when)
                if block.expired():
                    self.note("timeout", created, deadline, Outcome.EXPIRED)
                elif not self._timer.closed:  # closing the timer dropped the deadline
                    self.note("timeout", created, deadline, Outcome.COMPLETED)

    def now_ns(self) -> int:
        """The timer's time in nanoseconds."""
        return clock_to_ns(self._timer.time())

    def note(self, kind: str, created: int, deadline: int, outcome: Outcome) -> None:
        """Pass one row to the recorder; the call ends now."""
        now = self.now_ns()
        self._recorder.timer_finished(self._name, kind, created, deadline, now, outcome)


class RecordedHandle:
    """A `TimerHandle` that records a row when it fires or is cancelled; made by `RecordedTimer`."""

    __slots__ = ("_args", "_callback", "_created", "_handle", "_owner")

    def __init__(
        self, owner: RecordedTimer, callback: Callable[..., object], args: tuple[object, ...]
    ) -> None:
        checked = plain_callback("callback", callback, START_A_TASK)
        self._owner = owner
        self._callback: Callable[..., object] | None = checked
        self._args = args
        self._created = owner.now_ns()
        self._handle: TimerHandle

    def armed(self, handle: TimerHandle) -> RecordedHandle:
        """Attach the handle of the timer."""
        self._handle = handle
        return self

    def run(self) -> None:
        """Record the row and run the callback; the timer calls this."""
        callback, args = self._end(Outcome.EXPIRED)
        callback(*args)

    def cancel(self) -> bool:
        """Cancel like `TimerHandle.cancel`."""
        if not self._handle.cancel():
            return False
        self._end(Outcome.CANCELLED)
        return True

    def cancelled(self) -> bool:
        """Return the same as `TimerHandle.cancelled`."""
        return self._handle.cancelled()

    def fired(self) -> bool:
        """Return the same as `TimerHandle.fired`."""
        return self._handle.fired()

    def when(self) -> float:
        """Return the same as `TimerHandle.when`."""
        return self._handle.when()

    def touch(self, delay: Delay | None = None) -> bool:
        """Touch like `TimerHandle.touch`; the row holds the last deadline."""
        return self._handle.touch(delay)

    def reschedule(self, when: Delay) -> bool:
        """Reschedule like `TimerHandle.reschedule`; the row holds the last deadline."""
        return self._handle.reschedule(when)

    def _end(self, outcome: Outcome) -> tuple[Callable[..., object], tuple[object, ...]]:
        callback, args = self._callback, self._args
        assert callback is not None
        self._callback, self._args = None, ()
        kind = getattr(callback, "__qualname__", None) or type(callback).__qualname__
        self._owner.note(kind, self._created, self._handle.deadline, outcome)
        return callback, args
