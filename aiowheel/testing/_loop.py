"""An event loop whose clock jumps instead of sleeping. Rank 4.

Sources: trio's MockClock (autojump), tokio's paused clock (each timer at its own time), Twisted's
task.Clock (advance).
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context
from selectors import BaseSelector, DefaultSelector
from time import monotonic
from typing import Any, TypeVar, TypeVarTuple

from aiowheel._arguments import checked_bool, safe_repr
from aiowheel._types import Delay
from aiowheel._units import FOREVER, clock_to_ns, delay_to_ns, ns_to_alarm, ns_to_seconds
from aiowheel.errors import VirtualDeadlockError
from aiowheel.testing._agenda import Agenda
from aiowheel.testing._arrivals import Arrivals
from aiowheel.testing._deadlock import waiting_lines
from aiowheel.testing._idle_selector import Events, IdleSelector
from aiowheel.testing._outside import Outside

T = TypeVar("T")
ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)
Ts = TypeVarTuple("Ts")

#: Real seconds before a deadlock is reported if other threads run, which may call the loop.
_GRACE = 1.0
#: The same if a thread was started after the loop. An idle worker of a pool looks like a thread
#: that works for the loop, so that the loop cannot wait until such threads have ended.
_GRACE_OF_NEW_THREADS = 10.0
_LOOK_AT_THREADS = 0.1  # seconds between looks whether new threads are alive


def _start_ns(start: float) -> int:
    start_ns: int = delay_to_ns("start", start)
    if not -FOREVER < start_ns < FOREVER:
        raise ValueError(f"start must be finite, got {safe_repr(start)}")
    return start_ns


def _check_patience(patience: object) -> None:
    if isinstance(patience, bool) or not isinstance(patience, int | float):
        raise TypeError(f"patience must be a number of seconds, got {safe_repr(patience)}")
    if not patience >= 0:
        raise ValueError(f"patience must be 0 or more seconds, got {safe_repr(patience)}")


def _check_seed(seed: object) -> None:
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise TypeError(f"seed must be an integer or None, got {safe_repr(seed)}")


def _check_selector(selector: object) -> None:
    if selector is not None and not isinstance(selector, BaseSelector):
        raise TypeError(f"selector must be a selector or None, got {safe_repr(selector)}")


class VirtualClockEventLoop(asyncio.SelectorEventLoop):
    """A selector loop with a virtual clock, which moves in jumps of whole nanoseconds.

    While callbacks are ready the clock stands still. When no callback is ready, it jumps to the
    next deadline. An hour of sleep takes no time, and each timer fires at exactly its deadline.
    Loop timers, the timers of this package and purgatories share that clock. Sockets, executors,
    threads and child processes are real: while one of them may still cause an event, the loop
    waits *patience* for the event before each jump.

    Args:
        selector: The real selector to use; default: the best one of the platform.
        autojump: Whether the clock jumps by itself. If not, only `advance` moves it.
        patience: Real seconds to wait for an event from outside before a jump, 0 or more; `inf`
            waits without a limit.
        seed: Seed of the order in which loop timers due at one instant run; None keeps the order
            in which they were armed. Timers on one wheel keep their order in either case.
        start: The clock's first reading, in seconds.

    Raises:
        TypeError: *patience* or *start* is not a number, or *seed* is not an integer.
        ValueError: *patience* is negative or NaN, or *start* is not finite.
    """

    is_virtual: bool = True  # read by a Timer, whose clock may otherwise be another than the loop's

    def __init__(
        self,
        selector: BaseSelector | None = None,
        *,
        autojump: bool = True,
        patience: float = 0.1,
        seed: int | None = None,
        start: float = 0.0,
    ) -> None:
        usable = selector if isinstance(selector, BaseSelector) else DefaultSelector()
        self._idle_selector = IdleSelector(usable, self._on_idle)
        super().__init__(self._idle_selector)  # first, because `close` and `__del__` need it
        self._outside = Outside(self._idle_selector)
        self._arrivals = Arrivals()
        self._frozen = 0  # the number of open `freeze` blocks
        self.autojump: bool = autojump
        self.patience: float = patience
        try:
            _check_selector(selector)
            checked_bool("autojump", autojump)
            _check_patience(patience)
            _check_seed(seed)
            self._jump(_start_ns(start))
        except BaseException:
            self.close()
            raise
        self._agenda = Agenda(seed)

    # --- the clock --------------------------------------------------------------------------

    def time(self) -> float:
        """Return the reading of the virtual clock, in seconds."""
        return self._seconds

    async def advance(self, seconds: Delay) -> None:
        """Move the clock by *seconds*; timers due on the way fire at their own deadlines.

        Returns when no callback is ready at the new time: the timers due by then have fired, and
        the tasks that they woke have run until they wait again. Outside a running loop, use
        `loop.run_until_complete(loop.advance(30))`.

        Args:
            seconds: Number or timedelta; 0 runs the callbacks that are due now.

        Raises:
            ValueError: *seconds* is negative or not finite, or the time would exceed 73 years.
        """
        step = delay_to_ns("seconds", seconds)
        if not 0 <= step < FOREVER:
            raise ValueError(f"seconds must be from 0 to 73 years, got {safe_repr(seconds)}")
        instant = self._now_ns + step
        if instant >= FOREVER:  # every timer that is armed then would mean never
            raise ValueError(
                f"seconds must end within 73 years of 0, got {safe_repr(seconds)} at {self.time()}"
            )
        await self._arrivals.add(instant, self.create_future())

    @contextmanager
    def freeze(self) -> Generator[None]:
        """Stop the clock inside the block, except for `advance`; blocks nest."""
        self._frozen += 1
        try:
            yield
        finally:
            self._frozen -= 1

    def _jump(self, to_ns: int) -> None:
        # Both readings must be one instant, so that a deadline computed from either is never early.
        self._seconds = ns_to_alarm(to_ns)
        self._now_ns: int = clock_to_ns(self._seconds)

    # --- timers -----------------------------------------------------------------------------

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run `callback(*args)` at *when*, to the nanosecond.

        Raises:
            TypeError: *when* is not a number.
            ValueError: *when* is NaN.
        """
        due_ns: int = delay_to_ns("when", when)
        if due_ns <= self._now_ns and when > self._seconds:
            # *when* is less than a nanosecond ahead. Without this step, a task that sleeps until
            # `time()` reaches *when*, a rounding error away, would never end.
            due_ns = self._now_ns + 1
        base: Any = self  # the checks of BaseEventLoop.call_at, which typeshed does not have
        base._check_closed()
        if self.get_debug():
            base._check_thread()
            base._check_callback(callback, "call_at")
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        frames: Any = getattr(handle, "_source_traceback", None)  # in debug mode
        if frames:
            del frames[-1]  # this frame; the last one must be that of the caller
        self._agenda.add(due_ns, handle)
        return handle

    def _process_events(self, event_list: Events) -> None:
        """Queue I/O callbacks before due timers, as asyncio's loops do."""
        base: Any = super()
        base._process_events(event_list)
        for handle in self._agenda.pop_due(self._now_ns):
            base._add_callback(handle)

    # --- no callback is ready ---------------------------------------------------------------

    def _on_idle(self) -> Events:
        """Wait for events from outside, or move the clock."""
        due = self._agenda.next_due()
        if due is not None and due <= self._now_ns:
            return []  # `_process_events` queues the timer
        instant = self._next_instant(due)
        if instant is None:
            if self._outside.has_sources():
                return self._idle_selector.wait(math.inf)
            return self._on_standstill()
        if self._outside.may_come():
            if events := self._idle_selector.wait(self.patience):
                return events
        # A thread may have called the loop after the last poll, and ended before the look for it.
        elif events := self._idle_selector.wait(0):
            return events
        self._jump(instant)
        if instant != due:
            self._arrivals.settle()
        return []

    def _next_instant(self, due: int | None) -> int | None:
        """Return the instant to which the clock moves next; None if only an event moves it.

        Args:
            due: The instant of the next timer, or None.
        """
        arrival = self._arrivals.next_instant()
        if arrival is not None:
            return arrival if due is None else min(due, arrival)
        return due if self.autojump and not self._frozen else None

    def _on_standstill(self) -> Events:
        """Wait for other threads or report a deadlock: no timer and no event is pending."""
        others = threading.active_count() > 1
        tasks = asyncio.all_tasks(self)
        if threading.current_thread() is not threading.main_thread() or (others and not tasks):
            return self._idle_selector.wait(math.inf)  # this loop serves other threads
        # Poll once more in any case: a thread may have called the loop just before it ended.
        events = self._wait_for_new_threads() or self._idle_selector.wait(
            max(self.patience, _GRACE) if others else 0
        )
        if not events:
            raise VirtualDeadlockError(self._seconds, self._stopped_timers(), waiting_lines(tasks))
        return events

    def _wait_for_new_threads(self, _read: Callable[[], float] = monotonic) -> Events:
        # The clock is a default, because libraries that freeze time replace attributes of modules.
        end = _read() + max(self.patience, _GRACE_OF_NEW_THREADS)
        while self._outside.has_new_threads() and (left := end - _read()) > 0:
            if events := self._idle_selector.wait(min(left, _LOOK_AT_THREADS)):
                return events
        return []

    def _stopped_timers(self) -> str:
        """Describe the timers that cannot fire because the clock stands still."""
        due = self._agenda.next_due()
        if due is None:
            return ""
        return (
            f"; {self._agenda.pending()} timers are armed, the next for {ns_to_seconds(due)} s, "
            "but with autojump off, or frozen, only advance() moves the clock"
        )

    # --- events from outside ----------------------------------------------------------------

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Run *func* in *executor*; the clock waits *patience* for the job before each jump."""
        with self._outside.starting_workers():
            job = super().run_in_executor(executor, func, *args)
        self._outside.add_job(job)
        return job

    async def subprocess_exec(
        self,
        protocol_factory: Callable[[], ProtocolT],
        program: Any,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[asyncio.SubprocessTransport, ProtocolT]:
        """Start the program; the clock waits *patience* for its end before each jump."""
        child = await super().subprocess_exec(protocol_factory, program, *args, **kwargs)
        self._outside.add_child(child[0])
        return child

    async def subprocess_shell(
        self,
        protocol_factory: Callable[[], ProtocolT],
        cmd: bytes | str,
        **kwargs: Any,
    ) -> tuple[asyncio.SubprocessTransport, ProtocolT]:
        """Start the command; the clock waits *patience* for its end before each jump."""
        child = await super().subprocess_shell(protocol_factory, cmd, **kwargs)
        self._outside.add_child(child[0])
        return child

    def add_signal_handler(self, sig: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Add the handler; the clock waits *patience* for the signal before each jump."""
        super().add_signal_handler(sig, callback, *args)
        self._outside.add_signal(sig)

    def remove_signal_handler(self, sig: int) -> bool:
        """Remove the handler; return whether there was one."""
        self._outside.remove_signal(sig)
        return super().remove_signal_handler(sig)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109 - BaseEventLoop's
        """Wait for the threads of the default executor, in real time and without a limit.

        Args:
            timeout: Ignored, because a timeout on a clock that jumps would end at once.
        """
        ended: asyncio.Future[None] = self.create_future()
        self._outside.add_job(ended)
        try:
            await super().shutdown_default_executor()
        finally:
            ended.cancel()
