"""The driver of a wheel: it reads the clock, fires due tasks and sleeps until the next. Rank 1.

Sources: Kafka's SystemTimer with its reaper thread, of which this driver needs none; tokio's time
driver.
"""

from __future__ import annotations

import time
from asyncio import AbstractEventLoop, BaseEventLoop, CancelledError, Task
from asyncio.events import _get_running_loop
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from functools import partial
from threading import current_thread
from types import BuiltinMethodType
from typing import Any, Final, cast

from mypy_extensions import i64, mypyc_attr

from aiowheel._arguments import safe_repr
from aiowheel._events import emit
from aiowheel._units import FOREVER, clock_to_ns, ns_to_alarm, ns_to_seconds
from aiowheel.errors import ForeignLoopError, TimerClosedError
from aiowheel.timer._interpreter import monotonic_clock, monotonic_ns, thread_id
from aiowheel.timer._statistics import Histogram, TimerStatistics
from aiowheel.wheel._bucket import TimerEntry
from aiowheel.wheel._statistics import Counts
from aiowheel.wheel._wheel import TimingWheel

BUDGET_NS: Final = 5_000_000  #: the time that one slice may block the loop
#: The longest slice of a driver that is behind, if the loop delayed the slice for as long.
MOST_BUDGET_NS: Final = 1_000_000_000
SLOW_NS: Final = 100_000_000  #: a callback that takes this long or longer is logged
_RUNNING: Final = -1  # in _armed_ns: inside a slice, `arm` sets no alarm; `_rearm` does at the end
_MILLISECOND: Final = 1_000_000
#: asyncio's select() waits at most a day. The daily wake-up also fires deadlines that passed during
#: a suspension.
_LONGEST_SLEEP_NS: Final = 86_400_000_000_000
#: The loop's clock, by which an alarm rings, stands still while the machine is suspended.
_LONGEST_BOOTTIME_SLEEP_NS: Final = 1_000_000_000


class TimerCounts(Counts):
    """The counts of one driver's wheel, and the reference from a pending task to the driver.

    Attributes:
        driver: The driver; None once it is closed.
    """

    __slots__ = ("driver",)

    def __init__(self) -> None:
        super().__init__()
        self.driver: Driver | None = None


@mypyc_attr(acyclic=True)
class TimerTask(TimerEntry):
    """A deadline, in nanoseconds of the timer's clock, with the action to run at it.

    The payload is the object of the action, such as a callback; reports of failed and slow tasks
    have its `repr`. A task without one is cancelled. Source: Kafka's TimerTask.
    """

    __slots__ = ()

    def __init__(self, deadline: i64, payload: object) -> None:
        super().__init__(deadline, payload)

    def fire(self) -> None:
        """Run the action. The task is no longer pending; the driver reports an exception."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop what the report of an exception needs; called after an action that has raised."""


class Driver:
    """A wheel in nanoseconds and its clock; subclasses implement the sleeping.

    A driver has no reference to its `Timer`, so that the finalizer of a dropped timer runs at once
    and closes the driver.

    Args:
        clock: Returns seconds. It may stand still or jump; after a step back, nothing fires until
            the clock has reached its earlier time.
        tick_ns: The width of a bucket, in nanoseconds.
        wheel_size: The number of buckets of each level.
        loop: The loop in which every caller runs; None if callers need no loop.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        tick_ns: int,
        wheel_size: int,
        loop: AbstractEventLoop | None,
    ) -> None:
        self.clock = clock
        self.reads_monotonic: bool = clock is monotonic_clock()
        self.loop = loop
        self.closed: bool = False
        self.fired: i64 = 0
        self.callback_errors: i64 = 0
        self.wakeups: i64 = 0
        self.lateness: Histogram = Histogram()
        self.counts: TimerCounts = TimerCounts()
        self.counts.driver = self
        self._owner_thread: i64 = thread_id()
        self._running_thread: i64 = 0  # for the driver of a wheel loop; 0: the loop does not run
        self.withdrawn: set[TimerTask] = set()  # cancelled by other threads, still in the wheel
        # The attributes of one of asyncio's loops. Each call reads the loop's thread, and a look-up
        # in this dictionary costs a third of one by name.
        self._shown: dict[str, Any] = vars(loop) if isinstance(loop, BaseEventLoop) else {}
        self._shows_thread = "_thread_id" in self._shown
        self._armed_ns: i64 = FOREVER  # when `on_wake` will be called
        self._sliced_ns: i64 = 0  # when the last slice ended
        self._is_behind = False  # the last slice took longer than its ordinary budget
        self.sorts_overdue: bool = False  # tasks armed for the past fire by deadline, as in a heap
        self.wheel: TimingWheel = TimingWheel(
            tick_ns, wheel_size, clock_to_ns(clock()), counts=self.counts
        )

    def now_ns(self) -> i64:
        """Return the clock's time."""
        if self.reads_monotonic:
            return monotonic_ns()
        return clock_to_ns(self.clock())

    def deadline_after(self, delay_ns: i64) -> i64:
        """Return the deadline *delay_ns* from now."""
        return min(self.now_ns() + delay_ns, FOREVER)

    # --- callers ----------------------------------------------------------------------------

    def check(self) -> None:
        """Check that the driver is open and the caller runs in the driver's loop and thread.

        Raises:
            TimerClosedError: The driver is closed.
            ForeignLoopError: The caller runs in another loop or thread.
        """
        if self.closed:
            raise TimerClosedError("the timer has been closed")
        loop = self.loop
        if loop is None or (thread_id() == self._owner_thread and self._loop_is_running()):
            return
        self._check_running_loop()

    def _check_running_loop(self) -> None:
        # This is the last check, because on Python 3.11 the look-up is a system call.
        loop = self.loop
        if _get_running_loop() is not loop:
            raise foreign_loop_error("the timer belongs", loop, "the *_threadsafe calls")
        self._owner_thread = thread_id()

    def checked_now(self) -> i64:
        """Check as `check` does and return the clock's time."""
        self.check()
        return self.now_ns()

    def check_thread(self) -> None:
        """Check that the loop does not run in another thread than the caller's.

        This suffices for calls that change only the wheel: they are safe while the loop does not
        run.

        Raises:
            ForeignLoopError: The loop runs in another thread.
        """
        loop = self.loop
        if self._shows_thread:
            running_in: object = self._shown["_thread_id"]  # None while the loop does not run
            if running_in is not None and cast(int, running_in) != thread_id():
                self._check_running_loop()
        elif loop is not None and thread_id() != self._owner_thread and loop.is_running():
            self._check_running_loop()

    def run_in(self, thread: int | None) -> None:
        """Set the thread in which the loop runs, or None when it stops; wheel loops call this."""
        self._running_thread = 0 if thread is None else thread

    def runs_elsewhere(self) -> bool:
        """Return whether the loop runs in another thread than the caller's, as set by `run_in`."""
        return self._running_thread != 0 and thread_id() != self._running_thread

    def _loop_is_running(self) -> bool:
        # For a caller in `_owner_thread`: a loop that runs in this thread is its running loop.
        if self._shows_thread:
            # As `is_running()`, without the call; the loop may now run in another thread.
            running_in: object = self._shown["_thread_id"]
            return running_in is not None and cast(int, running_in) == self._owner_thread
        return cast(AbstractEventLoop, self.loop).is_running()

    # --- arming -----------------------------------------------------------------------------

    def arm(self, task: TimerTask, now_ns: i64) -> None:
        """Add *task* to the wheel; *now_ns* is a fresh reading of the clock. O(1)."""
        due = self.wheel.arm(task, now_ns)
        if due < self._armed_ns:
            try:
                self.wake_at(due, now_ns)
            except BaseException:  # for example a closed loop: no alarm would fire the task
                task.cancel()
                raise

    def move(self, task: TimerTask, deadline: i64, now_ns: i64) -> None:
        """Move a pending *task* to *deadline*. One write if later, O(1) if earlier."""
        wheel = self.wheel
        if deadline <= now_ns:
            wheel.observe_now(now_ns)
        if deadline >= self._armed_ns:
            wheel.move(task, deadline)
            return
        before = task.deadline
        wheel.move(task, deadline)
        due = wheel.due_at(task)
        if due < self._armed_ns:
            try:
                self.wake_at(due, now_ns)
            except BaseException:
                wheel.move(task, before)
                raise

    def wake_at(self, due_ns: i64, now_ns: i64) -> None:
        """Schedule a call of `run_slice` at *due_ns*, which is before the scheduled one."""
        raise NotImplementedError

    def wake_again(self) -> None:
        """Schedule a call of `run_slice` after one turn of the loop's other callbacks."""
        raise NotImplementedError

    # --- firing -----------------------------------------------------------------------------

    def run_slice(self) -> None:
        """Fire the due tasks until the budget ends, and the rest after a turn of the loop.

        The clock is read first, because event loops wake up early: by up to a clock tick, uvloop by
        up to a millisecond. Between slices, a task that has not fired can still be cancelled or
        moved, and a task armed meanwhile fires in its order.

        The budget of a slice is `BUDGET_NS`. After a slice that took longer, the driver is behind:
        the budget of the next slice is the time for which the loop's other callbacks delayed it, up
        to `MOST_BUDGET_NS`. Under overload, the timer and the other callbacks therefore each get
        half of the time.
        """
        wheel = self.wheel
        try:
            if self.sorts_overdue and not wheel.pass_is_open():
                wheel.sort_overdue()
            began = now = self.now_ns()
            limit = now + BUDGET_NS
            if self._is_behind:
                waited = now - max(self._armed_ns, self._sliced_ns)
                limit = now + max(BUDGET_NS, min(waited, MOST_BUDGET_NS))
            self._armed_ns = _RUNNING
            self._owner_thread = thread_id()
            self.wakeups += 1
            if now >= wheel.now:  # otherwise the clock was set back, and nothing is due yet
                wheel.open_pass(now)
            while wheel.pass_is_open():
                entry = wheel.pop_due()
                if entry is not None:
                    now = self._fire(cast(TimerTask, entry), now)
                elif wheel.pass_is_open():  # a thousand entries were cascaded
                    now = self.now_ns()
                if now >= limit:
                    break
            self._sliced_ns = now
            self._is_behind = now - began >= BUDGET_NS
        except BaseException:
            self._rearm(self.now_ns())
            raise
        self._rearm(now)

    def fire_due(self, task: TimerTask, now: i64) -> None:
        """Fire a pending *task* that is due at *now*, before the wheel reaches it."""
        self.wheel.take(task)
        self._fire(task, now)

    def _fire(self, task: TimerTask, now: i64) -> i64:
        """Run one task; return the time after it."""
        target = task.payload
        if target is None:  # a ThreadsafeHandle that is cancelled, and not withdrawn yet
            self.counts.expired -= 1
            self.counts.cancelled += 1
            return now
        late = task.late_at(now)
        if late < 0:  # the clock was set back inside this slice, or the wheel has a bug
            emit("aiowheel.fired_early", callback=safe_repr(target), seconds=ns_to_seconds(-late))
        self.fired += 1
        self.lateness.record(late)
        try:
            task.fire()
        except (SystemExit, KeyboardInterrupt):
            task.forget()
            raise
        except BaseException as error:  # one failing callback must not prevent the others
            self.callback_errors += 1
            try:
                self.report(
                    {
                        "message": f"Exception in timer callback {safe_repr(target)}",
                        "exception": error,
                        "handle": task,
                    }
                )
            finally:
                task.forget()
        after = self.now_ns()
        if after - now >= SLOW_NS and not _is_alarm(target):
            took = ns_to_seconds(after - now)
            emit("aiowheel.slow_callback", callback=safe_repr(target), seconds=took)
        return after

    def report(self, context: dict[str, object]) -> None:
        """Report an exception; *context* is as for `loop.call_exception_handler`."""
        raise NotImplementedError

    def _rearm(self, now: i64) -> None:
        try:
            self._wake_for_next(now)
        except BaseException:  # for example Ctrl-C: nothing else would set this alarm
            self._wake_for_next(now)
            raise

    def _wake_for_next(self, now: i64) -> None:
        self._armed_ns = FOREVER
        if self.wheel.pass_is_open():
            self.wake_again()
            return
        upcoming = self.wheel.next_expiration()
        if upcoming is not None:
            self.wake_at(upcoming, now)

    def close(self) -> None:
        """Drop every pending task and refuse new ones; then raise the first error of a `drop`."""
        self.closed = True
        self.counts.driver = None
        failure: BaseException | None = None
        for entry in self.wheel.clear():
            try:
                cast(TimerTask, entry).drop()
            except BaseException as error:  # the other tasks must still be dropped
                if failure is None:
                    failure = error
        if failure is not None:
            raise failure

    # --- inspection -------------------------------------------------------------------------

    def statistics(self) -> TimerStatistics:
        """Return a snapshot of the counts. O(size of the lateness histogram)."""
        counts = self.counts
        return TimerStatistics(
            pending=counts.pending,
            scheduled=counts.scheduled,
            fired=self.fired,
            cancelled=counts.cancelled,
            rescheduled=counts.rescheduled,
            wakeups=self.wakeups,
            cascaded=counts.cascaded,
            callback_errors=self.callback_errors,
            lateness=self.lateness.copy(),
        )


class LoopDriver(Driver):
    """A driver on an event loop, with at most one loop timer, its alarm.

    Args:
        loop: The loop in which slices run.
        tick_ns: The width of a bucket, in nanoseconds.
        wheel_size: The number of buckets of each level.
        arm_alarm: The method of its base class with which a wheel loop sets the alarm: `call_at` of
            asyncio's loops, `call_later` of others. Default: the loop's own method.
        clock: Returns seconds; default: the clock of the loop.

    Attributes:
        on_wake: Called by the alarm: `run_slice`, or `ring` of the bell that a driver task awaits.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        tick_ns: int,
        wheel_size: int,
        arm_alarm: Callable[..., object] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        on_uvloop = any(kind.__module__ == "uvloop.loop" for kind in type(loop).__mro__)
        # `time` of both kinds is the monotonic clock, if no subclass overrides it. uvloop truncates
        # it to milliseconds, and a delay counted from a truncated "now" ends early.
        loop_time = type(loop).time
        reads_monotonic = (
            loop_time is BaseEventLoop.time or getattr(loop_time, "__module__", "") == "uvloop.loop"
        )
        # Tests replace `time` on the loop itself. A wheel loop's is the monotonic clock.
        replaced: object = getattr(loop, "__dict__", {}).get("time")
        if replaced is not None and replaced is not monotonic_clock():
            reads_monotonic = False
        if clock is None:
            clock = monotonic_clock() if reads_monotonic else loop.time
        super().__init__(clock, tick_ns, wheel_size, loop)
        self.own_loop = loop
        self.on_wake: Callable[[], object] = self.run_slice
        self._by_delay: bool = on_uvloop
        if arm_alarm is None:
            arm_alarm = loop.call_later if on_uvloop else loop.call_at
        else:
            self._by_delay = not isinstance(loop, BaseEventLoop)
        # Any, because compiled code would check a loop's handle against asyncio's type, whose
        # cancel() returns None; that of a wheel loop returns a bool.
        self._arm_alarm: Callable[..., Any] = arm_alarm
        self._alarm: Any = None
        # An empty context instead of the one of the caller that armed the earliest deadline: each
        # alarm would keep that context alive and pass it to the next alarm.
        self._context = Context()

    def wake_at(self, due_ns: i64, now_ns: i64) -> None:
        alarm_ns = min(due_ns, now_ns + _LONGEST_SLEEP_NS)
        if not self._by_delay:
            alarm = self._arm_alarm(ns_to_alarm(alarm_ns), self.wake, context=self._context)
        elif due_ns <= now_ns:  # uvloop does the same for a delay of 0
            alarm = self.own_loop.call_soon(self.wake, context=self._context)
        else:
            # uvloop counts whole milliseconds from a truncated clock: due is rounded up, now down.
            delay = -(-alarm_ns // _MILLISECOND) - now_ns // _MILLISECOND
            alarm = self._arm_alarm(int(delay) / 1e3, self.wake, context=self._context)
        self._replace_alarm(alarm, due_ns)

    def wake_again(self) -> None:
        if self._by_delay:
            alarm = self.own_loop.call_soon(self.wake, context=self._context)
        else:
            # After the loop's own timers that are due: asyncio runs what `call_soon` has queued
            # before them, and a task that sleeps would wait for one slice more.
            alarm = self._arm_alarm(self.own_loop.time(), self.wake, context=self._context)
        self._replace_alarm(alarm, _RUNNING)

    def _replace_alarm(self, alarm: Any, due_ns: i64) -> None:
        # The new alarm is set before the old one is cancelled, because Ctrl-C may come in between.
        old = self._alarm
        self._alarm = alarm
        self._armed_ns = due_ns
        if old is not None:
            old.cancel()

    def wake(self) -> None:
        """Call `on_wake`; the loop's alarm calls this."""
        self._alarm = None
        self.on_wake()

    def report(self, context: dict[str, object]) -> None:
        self.own_loop.call_exception_handler(context)

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self.on_wake = _wake_nothing
        super().close()


def _wake_nothing() -> None:
    """Replace `on_wake` of a closed driver, which refers to the driver."""


def foreign_loop_error(what: str, loop: object, instead: str) -> ForeignLoopError:
    """Return the error of a call outside of *loop*, the loop of an object.

    Args:
        what: The object and its verb: "the timer belongs".
        loop: The loop to which it belongs.
        instead: What other threads may use.
    """
    running = _get_running_loop()
    where = "no event loop runs" if running is None else f"was called from {running!r}"
    return ForeignLoopError(
        f"{what} to {loop!r}, but {where} in thread {current_thread().name!r}; "
        f"other threads may use {instead}"
    )


def _is_alarm(target: object) -> bool:
    """Return whether the payload of a task is `wake` of a driver, which logs its slow callbacks.

    On a wheel loop, the alarms of other drivers are tasks of the loop's driver.
    """
    if type(target) is BuiltinMethodType:  # in the compiled build, a bound method of a driver
        owner: object = cast(Any, target).__self__
        return issubclass(type(owner), LoopDriver)
    return target is LoopDriver.wake  # a handle keeps the function of a bound method


class BoottimeDriver(LoopDriver):
    """A driver whose clock includes the time for which the machine was suspended.

    The loop's clock stands still meanwhile. While a deadline is pending, the driver therefore wakes
    up at least once per second.
    """

    def wake_at(self, due_ns: i64, now_ns: i64) -> None:
        delay_ns = max(0, min(due_ns - now_ns, _LONGEST_BOOTTIME_SLEEP_NS))
        # Whole milliseconds, because uvloop rounds 0.4 ms down, and the driver would spin.
        milliseconds = -(-delay_ns // _MILLISECOND)
        alarm = self.own_loop.call_later(int(milliseconds) / 1e3, self.wake, context=self._context)
        self._replace_alarm(alarm, due_ns)


def boottime_clock() -> Callable[[], float] | None:
    """Return a function that reads CLOCK_BOOTTIME in seconds; None if the system has no such clock.

    Only Linux has this clock.
    """
    read = getattr(time, "clock_gettime", None)
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return None if read is None or clock is None else partial(read, clock)


class Bell:
    """An awaitable for a driver task; `ring` resumes the task in the same turn of the loop.

    A bell has the methods of a future that a task uses. A new future for every alarm would resume
    the task one turn later and cost twice as much.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._resume: Callable[[Bell], object] | None = None
        self._rung = False
        self._yielded = False
        self._cancelled = False

    def ring(self) -> None:
        """Resume the waiting task; if the task is not waiting yet, its next wait ends at once."""
        resume = self._resume
        if resume is None:
            self._rung = True
        else:
            self._resume = None
            resume(self)

    def __await__(self) -> Generator[None, None, None]:
        return cast("Generator[None, None, None]", self)  # any iterator is accepted

    def __iter__(self) -> Bell:
        return self

    def __next__(self) -> Bell:
        if self.has_rung():
            raise StopIteration
        return self

    def has_rung(self) -> bool:
        """Return whether the wait of the task has ended; if not, the wait begins."""
        if self._yielded or self._rung:
            self._yielded = self._rung = False
            return True
        self._yielded = self._asyncio_future_blocking = True
        return False

    # --- the methods of a future ------------------------------------------------------------

    def get_loop(self) -> AbstractEventLoop:
        """Return the loop of the task."""
        return self._loop

    def add_done_callback(
        self,
        callback: Callable[[Bell], object],
        *,
        context: Context | None = None,  # noqa: ARG002 - a future's; the task uses its own
    ) -> None:
        """Store the function that resumes the task."""
        self._resume = callback

    def done(self) -> bool:
        """Return whether no task waits; anyio asks this of what the tasks of a loop wait for."""
        return self._resume is None

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 - a future's parameter
        """Resume the task with a cancellation in the next turn of the loop."""
        resume = self._resume
        if resume is None:
            return False
        self._resume = None
        self._cancelled = True
        self._loop.call_soon(resume, self, context=Context())
        return True

    def result(self) -> None:
        """Return None, or raise the cancellation."""
        if self._cancelled:
            raise CancelledError


class DriverCoroutine:
    """The coroutine of a driver task: `while True: await bell; driver.run_slice()`.

    It is an object with the methods of a coroutine, because the code of an `async def` that
    suspends cannot be compiled (see `_closing`), and is slow after a sleep.
    """

    def __init__(self, driver: LoopDriver, bell: Bell) -> None:
        self._driver = driver
        self._bell = bell

    def send(self, value: object) -> Bell:  # noqa: ARG002 - a coroutine's parameter
        """Run a slice for each ring, and return the bell, which the task awaits."""
        while self._bell.has_rung():
            self._driver.run_slice()
        return self._bell

    def throw(self, error: BaseException) -> Bell:
        """Raise *error*, such as the cancellation of the task, which ends the coroutine."""
        raise error

    def close(self) -> None:
        """Do nothing: the coroutine holds nothing open."""

    # For a task factory that wraps the coroutine in another one.

    def __await__(self) -> Generator[Bell, None, None]:
        return cast("Generator[Bell, None, None]", self)

    def __iter__(self) -> DriverCoroutine:
        return self

    def __next__(self) -> Bell:
        return self.send(None)


class DriverTask:
    """The task of a driver: it awaits the alarm and runs one slice for each.

    The task starts again after a cancellation of all tasks, and after a KeyboardInterrupt in a
    callback, so that no deadline is lost.
    """

    def __init__(self, driver: LoopDriver) -> None:
        self._driver = driver
        self._stopping = False
        self._start()

    def _start(self) -> None:
        loop = self._driver.own_loop
        bell = Bell(loop)
        self._driver.on_wake = bell.ring
        # An empty context, because a copy of the creator's context would keep its values alive.
        context = Context()
        coroutine = cast("Coroutine[Any, Any, None]", DriverCoroutine(self._driver, bell))
        # Without options, because a task factory may have none.
        self._task: Task[None] = context.run(loop.create_task, coroutine)
        self._task.set_name("aiowheel-driver")
        # If the loop is closed before the timer, the warning of the timer names the cause.
        cast(Any, self._task)._log_destroy_pending = False
        self._task.add_done_callback(self._on_done, context=context)

    def _on_done(self, task: Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._stopping or self._driver.own_loop.is_closed():
            return
        self._start()
        self._driver.wake_again()
        if error is not None:  # a cancellation is not logged: `asyncio.run` cancels every task
            emit("aiowheel.driver_restarted", reason=repr(error))

    def abandon(self) -> None:
        """End the task without waiting for it; finalizers call this in any thread."""
        loop = self._driver.own_loop
        if not self._stopping and not loop.is_closed():
            self._stopping = True
            loop.call_soon_threadsafe(self._task.cancel, context=Context())

    def cancel(self) -> Task[None]:
        """End the task, and return it, so that the caller can wait for its end."""
        self._stopping = True
        self._task.cancel()
        return self._task
