"""An event loop whose time jumps where another would sleep. Rank 4.

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
from typing import Any, TypeVar, TypeVarTuple

from aiowheel._units import FOREVER, clock_to_ns, delay_to_ns, ns_to_alarm, ns_to_seconds
from aiowheel.errors import VirtualDeadlockError
from aiowheel.testing._agenda import Agenda
from aiowheel.testing._arrivals import Arrivals
from aiowheel.testing._deadlock import waiting_lines
from aiowheel.testing._idle_selector import Events, IdleSelector
from aiowheel.testing._outside import Outside

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: Real seconds before a deadlock is called one while other threads live: any may call the loop.
_GRACE = 1.0


def _start_ns(start: float) -> int:
    start_ns: int = delay_to_ns("start", start)
    if not -FOREVER < start_ns < FOREVER:
        raise ValueError(f"start must be finite, got {start!r}")
    return start_ns


def _check_patience(patience: float) -> None:
    if not patience >= 0:
        raise ValueError(f"patience must be 0 or more seconds, got {patience!r}")


class VirtualClockEventLoop(asyncio.SelectorEventLoop):
    """A selector loop on a clock of its own, kept in whole nanoseconds, that moves in jumps.

    While callbacks are ready the clock stands still. When none is, it jumps to the next deadline,
    so an hour of sleeping takes no time, and everything runs at exactly the time it asked for.
    Loop timers, the timers of this package and purgatories share that clock. Sockets, executors,
    threads and child processes are real: while one of them may still answer, the loop waits
    *patience* for it before each jump.

    Args:
        selector: The real selector to use; default: the platform's best.
        autojump: Whether time passes by itself. If not, it passes in `advance` alone.
        patience: Real seconds to wait for the outside before a jump, 0 or more; `inf`: until it
            answers.
        seed: Shuffles the callbacks of loop timers due at one instant, the same way each time;
            None: they run in the order they were armed. Timers on one wheel keep their promise
            and their order.
        start: What the clock shows at first, in seconds.

    Raises:
        ValueError: *patience* is negative or NaN, or *start* is not finite.
    """

    def __init__(
        self,
        selector: BaseSelector | None = None,
        *,
        autojump: bool = True,
        patience: float = 0.1,
        seed: int | None = None,
        start: float = 0.0,
    ) -> None:
        self._idle_selector = IdleSelector(selector or DefaultSelector(), self._on_idle)
        super().__init__(self._idle_selector)  # first: a loop is closed properly or complains
        self._outside = Outside(self._idle_selector)
        self._agenda = Agenda(seed)
        self._arrivals = Arrivals()
        self._frozen = 0  # how many `freeze` blocks are open
        self.autojump = autojump
        self.patience = patience
        try:
            self._jump(_start_ns(start))
            _check_patience(patience)
        except BaseException:
            self.close()
            raise

    # --- the clock --------------------------------------------------------------------------

    def time(self) -> float:
        """Seconds on the virtual clock."""
        return self._seconds

    async def advance(self, seconds: object) -> None:
        """Let *seconds* pass, and everything that comes due on the way run at its own time.

        Returns once nothing is left to do at the new time: timers due then have fired, and the
        tasks they woke have gone on as far as they could. Outside a running loop,
        `loop.run_until_complete(loop.advance(30))`.

        Args:
            seconds: Number or timedelta; 0 lets what is due now run.

        Raises:
            ValueError: *seconds* is negative or not finite.
        """
        step = delay_to_ns("seconds", seconds)
        if not 0 <= step < FOREVER:
            raise ValueError(f"seconds must be finite and not negative, got {seconds!r}")
        await self._arrivals.add(self._now_ns + step, self.create_future())

    @contextmanager
    def freeze(self) -> Generator[None]:
        """Inside the block time passes in `advance` alone; blocks nest."""
        self._frozen += 1
        try:
            yield
        finally:
            self._frozen -= 1

    def _jump(self, to_ns: int) -> None:
        # The two must name one instant: a deadline read from either is then never a hair ahead.
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
        """Run `callback(*args)` at *when*, to the nanosecond; as on any loop.

        Raises:
            TypeError: *when* is no number.
            ValueError: *when* is NaN.
        """
        due_ns: int = delay_to_ns("when", when)
        if due_ns <= self._now_ns and when > self._seconds:
            # Less than a nanosecond ahead. Whoever sleeps the rest of a float's rounding error
            # until `time()` has reached it must get there.
            due_ns = self._now_ns + 1
        base: Any = self  # what BaseEventLoop.call_at checks; not in typeshed
        base._check_closed()
        if self.get_debug():
            base._check_thread()
            base._check_callback(callback, "call_at")
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        frames: Any = getattr(handle, "_source_traceback", None)  # in debug mode
        if frames:
            del frames[-1]  # ours: the last is to be the caller's
        self._agenda.add(due_ns, handle)
        return handle

    def _process_events(self, event_list: Events) -> None:
        """I/O first, then what is due: the order of asyncio's loops."""
        base: Any = super()
        base._process_events(event_list)
        for handle in self._agenda.pop_due(self._now_ns):
            base._add_callback(handle)

    # --- nothing is ready -------------------------------------------------------------------

    def _on_idle(self) -> Events:
        """Wait for the outside, or let time pass."""
        due = self._agenda.next_due()
        instant: int | None
        if due is not None and due <= self._now_ns:
            return []  # `_process_events` runs it
        arrival = self._arrivals.next_instant()
        if arrival is not None:
            instant = arrival if due is None else min(due, arrival)
        else:
            instant = due if self.autojump and not self._frozen else None
        if self._outside.may_come():
            events = self._idle_selector.wait(math.inf if instant is None else self.patience)
            if events or instant is None:
                return events
        elif instant is None:
            return self._on_standstill()
        self._jump(instant)
        if instant != due:
            self._arrivals.settle()
        return []

    def _on_standstill(self) -> Events:
        """Nothing we know of can make the loop go on: wait for threads, or call it a deadlock."""
        others = threading.active_count() > 1
        tasks = asyncio.all_tasks(self)
        if threading.current_thread() is not threading.main_thread() or (others and not tasks):
            return self._idle_selector.wait(math.inf)  # a loop that serves other threads
        # Asked once more in any case: a thread may have called just before it ended.
        events = self._idle_selector.wait(max(self.patience, _GRACE) if others else 0)
        if not events:
            raise VirtualDeadlockError(self._seconds, self._stopped_timers(), waiting_lines(tasks))
        return events

    def _stopped_timers(self) -> str:
        """What to say of timers that wait for somebody to move the clock."""
        due = self._agenda.next_due()
        if due is None:
            return ""
        return (
            f"; {self._agenda.pending()} timers are armed, the next for {ns_to_seconds(due)} s, "
            "but with autojump off, or frozen, the clock moves in advance() alone"
        )

    # --- the outside ------------------------------------------------------------------------

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """As on any loop; the clock is patient with the job."""
        with self._outside.hiring():
            job = super().run_in_executor(executor, func, *args)
        self._outside.expect(job)
        return job

    def add_signal_handler(self, sig: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """As on any loop; the clock is patient with the signal."""
        super().add_signal_handler(sig, callback, *args)
        self._outside.heed(sig)

    def remove_signal_handler(self, sig: int) -> bool:
        """As on any loop."""
        self._outside.ignore(sig)
        return super().remove_signal_handler(sig)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109 - BaseEventLoop's
        """Wait for the threads of the default executor, in real time and without a bound.

        Args:
            timeout: Not used: it would be over at once on a clock that jumps.
        """
        ended: asyncio.Future[None] = self.create_future()
        self._outside.expect(ended)
        try:
            await super().shutdown_default_executor()
        finally:
            ended.cancel()
