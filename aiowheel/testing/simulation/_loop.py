"""The event loop of a simulation, which draws the order and the time of events. Rank 4.

Sources: the deterministic simulation of FoundationDB, and the paused clock of tokio.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Generator
from concurrent.futures import Executor
from functools import partial
from itertools import count
from random import Random
from typing import Any, TypeAlias, TypeVar, TypeVarTuple

from aiowheel._types import Delay
from aiowheel._units import FOREVER, delay_to_ns
from aiowheel.errors import VirtualDeadlockError
from aiowheel.loop import WheelEventLoopMixin
from aiowheel.testing._deadlock import waiting_lines
from aiowheel.testing._idle_selector import Events
from aiowheel.testing._loop import VirtualClockEventLoop
from aiowheel.testing.simulation._other_thread import call_in_other_thread

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_Coroutine: TypeAlias = Coroutine[Any, Any, T] | Generator[Any, None, T]

#: The default of `World.most_turns`.
MOST_TURNS = 100_000
_LATE = 0.1  # the share of timers that fire late
_LATEST_NS = (1, 1_000, 999_999, 1_000_000, 17_000_000)
#: Seconds that a job of an executor takes.
_JOB_SECONDS = (0.0, 0.0001, 0.01, 2.0)


class TooManyTurnsError(AssertionError):
    """A part of a run took more turns of the loop than the world allows."""


class _Numbered:
    """An object with a number as its hash.

    asyncio keeps futures and tasks in sets, for example in `wait` and `TaskGroup`. The order of a
    set depends on the hashes, and the hash of a plain future is its address in memory.
    """

    _number: int

    def __hash__(self) -> int:
        return self._number


class _NumberedFuture(_Numbered, asyncio.Future[T]):
    """A future of a simulation."""

    def __init__(self, *, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number  # before the base class, which adds a task to a set
        super().__init__(loop=loop)


class _NumberedTask(_Numbered, asyncio.Task[T]):
    """A task of a simulation."""

    def __init__(self, coroutine: _Coroutine[T], *, number: int, **kwargs: Any) -> None:
        self._number = number
        super().__init__(coroutine, **kwargs)

    def set_name(self, value: object) -> None:
        """Set the name; the loops of some releases of Python 3.13 pass None to a factory's task."""
        if value is not None:
            super().set_name(value)


class SimulationLoop(VirtualClockEventLoop):
    """A virtual loop without events from outside, whose choices come from a seed.

    The callbacks that are ready in one turn run in a drawn order, timers fire late by a drawn time,
    and jobs of executors run one at a time, after a drawn time, in another thread for which the
    loop waits. A simulation has no sockets, signals and child processes.

    asyncio runs ready callbacks in the order in which they became ready. The drawn order finds code
    that depends on this order for the tasks of several clients.

    Args:
        seed: The seed of all choices.
        kinds: The faults that may happen; the loop itself injects "reorder" and "delay".
        start: The clock's first reading, in seconds.

    Attributes:
        turns: The number of turns so far.
        peak_ns: The latest reading of the clock, which may have been set back since.
        idle: Called when no callback is ready, before the clock moves.
        on_fault: Called with the kind of each fault of the loop.
    """

    peak_ns: int = -FOREVER
    _at_one_instant: bool = False
    _ready: deque[asyncio.Handle]  # of BaseEventLoop: the handles that run in this turn

    def __init__(self, *, seed: int, kinds: Collection[str], start: float = 0.0) -> None:
        super().__init__(patience=0, seed=seed, start=start)
        self.turns: int = 0
        self.idle: Callable[[], object] = _nothing
        self.on_fault: Callable[[str], object] = _nothing
        self.chance: Random = Random(f"loop {seed}")  # noqa: S311 - repeatable on purpose
        self._kinds = frozenset(kinds)
        self._failure: BaseException | None = None
        self.limit_turns(MOST_TURNS, "the run")
        self.slow_callback_duration: float = math.inf  # in debug mode, each stall would be logged
        self._numbers = count()
        self.set_task_factory(self._new_task)

    def _new_task(
        self, _: asyncio.AbstractEventLoop, coroutine: _Coroutine[T], **kwargs: Any
    ) -> _NumberedTask[T]:
        return _NumberedTask(coroutine, number=next(self._numbers), loop=self, **kwargs)

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future whose place in a set is the same in each repetition of the run."""
        return _NumberedFuture(number=next(self._numbers), loop=self)

    def limit_turns(self, most: int, part: str, *, at_one_instant: bool = False) -> None:
        """Count the turns from now on, and raise an error in the turn after *most* turns.

        Args:
            most: The number of turns.
            part: The part of the run that begins, for the text of the error.
            at_one_instant: Whether each move of the clock begins a new count.
        """
        self._most_turns, self._part, self._at_one_instant = most, part, at_one_instant
        self._counted = 0

    @property
    def now_ns(self) -> int:
        """The clock in whole nanoseconds."""
        return self._now_ns

    def _jump(self, to_ns: int) -> None:
        super()._jump(to_ns)
        self.peak_ns = max(self.peak_ns, self._now_ns)
        if self._at_one_instant:
            self._counted = 0

    def stall(self, seconds: Delay) -> None:
        """Let *seconds* pass while no callback runs, as in a slow callback or a suspended machine.

        A negative time sets the clock back.
        """
        self._jump(self._now_ns + delay_to_ns("seconds", seconds))

    def fail(self, error: BaseException) -> None:
        """Make the loop raise *error* in its next turn; later errors before it are ignored."""
        if self._failure is None:
            self._failure = error

    # --- one turn ---------------------------------------------------------------------------

    def _process_events(self, event_list: Events) -> None:
        super()._process_events(event_list)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        self.turns += 1
        self._counted += 1
        if self._counted > self._most_turns:
            raise TooManyTurnsError(
                f"{self._part} took more than {self._most_turns} turns of the loop; if no callback "
                "repeats endlessly, give the world a larger most_turns"
            )
        ready = self._ready
        if len(ready) > 1 and "reorder" in self._kinds:
            order = list(ready)
            self.chance.shuffle(order)
            ready.clear()
            ready.extend(order)
            self.on_fault("reorder")

    def _on_idle(self) -> Events:
        """Move the clock to the next deadline, or to a drawn time after it."""
        if self._failure is not None:
            return []  # `_process_events` raises it; it may be the reason why all tasks wait
        due = self._agenda.next_due()
        if due is not None and due <= self._now_ns:
            return []  # `_process_events` queues the timer
        self.idle()
        if self._ready:
            return []
        instant = self._next_instant(due)
        if instant is None:
            lines = waiting_lines(asyncio.all_tasks(self))
            raise VirtualDeadlockError(self._seconds, self._stopped_timers(), lines)
        late = 0
        if instant == due and "delay" in self._kinds and self.chance.random() < _LATE:
            late = self.chance.choice(_LATEST_NS)
            self.on_fault("delay")
        # A late timer or a stall may have moved the clock past the end of an `advance`.
        self._jump(max(instant, self._now_ns) + late)
        if instant != due:
            self._arrivals.settle()
        return []

    # --- jobs -------------------------------------------------------------------------------

    def run_in_executor(
        self,
        executor: Executor | None,  # noqa: ARG002 - BaseEventLoop's
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Run *func* in another thread after a drawn time; the loop waits for its end."""
        job: asyncio.Future[T] = self.create_future()
        call = partial(func, *args)
        self.call_later(self.chance.choice(_JOB_SECONDS), self._do_job, job, call)
        return job

    def _do_job(self, job: asyncio.Future[T], call: Callable[[], T]) -> None:
        if job.cancelled():  # the job was cancelled while it was queued
            return
        try:
            result = call_in_other_thread(call)
        except Exception as error:
            job.set_exception(error)
        else:
            job.set_result(result)


class SimulationWheelLoop(WheelEventLoopMixin, SimulationLoop):
    """A simulation loop whose own timers are on the wheel."""


def _nothing(*_: object) -> None:
    return
