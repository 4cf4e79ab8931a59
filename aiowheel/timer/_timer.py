"""The running timer: callbacks, sleeps and timeouts on one wheel. Rank 1."""

from __future__ import annotations

import warnings
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextvars import Context
from inspect import isawaitable
from types import CoroutineType
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack, cast, overload

from mypy_extensions import i64

from aiowheel._arguments import checked_choice, safe_repr
from aiowheel._coroutine_function import coroutine_function
from aiowheel._types import Clock, Count, Delay, Missed
from aiowheel._units import delay_to_ns, ns_to_seconds
from aiowheel.errors import ForeignLoopError, TimerClosedError
from aiowheel.timer._closing import close_timer, in_frame
from aiowheel.timer._driver import (
    BoottimeDriver,
    Driver,
    DriverTask,
    LoopDriver,
    boottime_clock,
)
from aiowheel.timer._handle import TimerHandle, armed_after, armed_at
from aiowheel.timer._periodic import Periodic, Schedule
from aiowheel.timer._periodic_tasks import PeriodicTasks
from aiowheel.timer._statistics import TimerStatistics
from aiowheel.timer._threads import Threads, ThreadsafeHandle
from aiowheel.timer._timeout import (
    MoveOn,
    Timeout,
    move_on_after,
    move_on_at,
    timeout_after,
    timeout_at,
)
from aiowheel.timer._waiting import Interval, sleep, wait_for
from aiowheel.wheel._wheel import checked_wheel_size

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_CLOCKS: Final = ("monotonic", "boottime")
_SHARED: Final = (
    "the shared timer of a loop serves all of its users and closes with the loop; "
    "to close a timer earlier, make one: `async with Timer()`"
)


class Timer:
    """A timer on an event loop, which arms, cancels and moves deadlines in O(1) each.

    Use it in `async with`; it belongs to the running loop until the block ends. It uses one timer
    of the loop, however many deadlines are pending. No deadline fires early; each is late by less
    than a tick, plus the loop's own delay. Deadlines fire tick by tick, and within a tick in the
    order they were armed. A deadline that was moved later takes its place in that order when time
    reaches its old bucket.

    Times are seconds, as float, int or timedelta, kept as whole nanoseconds.

    Args:
        tick: The width of a bucket, from 1 microsecond to 1 hour; deadlines are late by up to this.
        wheel_size: The number of buckets of each level, from 2 to 2**24.
        clock: "monotonic" is the clock of the loop. On Linux it stands still while the machine is
            suspended. "boottime" is CLOCK_BOOTTIME of Linux, which does not: a deadline that passed
            during a suspension fires within a second after it. For that, the timer wakes up each
            second while a deadline is pending. On a virtual loop, both are the clock of the loop.

    Raises:
        TypeError: *tick* or *wheel_size* is not a number, or *clock* is not a string.
        ValueError: An argument is out of range.
    """

    # Defaults for a subclass that does not call `super().__init__()`.
    _driver: Driver | None = None
    _tick_ns: i64 = 0
    _wheel_size: int = 0
    _is_shared: bool = False
    _driver_task: DriverTask | None = None
    _tasks: PeriodicTasks | None = None

    def __init__(
        self, *, tick: Delay = 0.001, wheel_size: Count = 256, clock: Clock = "monotonic"
    ) -> None:
        self._tick_ns = delay_to_ns("tick", tick)
        if not 1_000 <= self._tick_ns <= 3_600_000_000_000:
            raise ValueError(f"tick must be from 1 microsecond to 1 hour, got {safe_repr(tick)}")
        self._wheel_size = checked_wheel_size(wheel_size)
        self._clock = _checked_clock(clock)  # None: the clock of the loop
        self._driver = None  # None until the timer is entered, like the three below
        self._threads: Threads | None = None
        self._tasks = None
        self._driver_task = None

    def __del__(self) -> None:
        # Handles have no reference to the timer, so this runs even if a million are pending. The
        # links between them must be broken.
        if getattr(self, "_driver", None) is not None:
            in_frame(self._finalize)

    def _finalize(self) -> None:
        driver = cast(Driver, self._driver)
        unclosed = self._driver_task is not None and not driver.closed
        text = f"unclosed {self!r}" if unclosed else ""
        _close_anywhere(driver, cast(Threads, self._threads), cast(PeriodicTasks, self._tasks))
        if self._driver_task is not None:
            self._driver_task.abandon()
        cast(PeriodicTasks, self._tasks).abandon()
        if unclosed:  # last, because this raises if warnings are errors
            warnings.warn(text, ResourceWarning, source=self, stacklevel=4)

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled: it owns its deadlines")

    # --- opening and closing ----------------------------------------------------------------

    async def __aenter__(self) -> Timer:
        if self._wheel_size == 0:
            raise self._unusable()
        if self._is_shared:
            raise RuntimeError(_SHARED)
        if self._driver is not None:
            raise TimerClosedError("a Timer can be entered once; make another")
        loop = get_running_loop()
        clock = None if getattr(loop, "is_virtual", False) else self._clock
        kind = LoopDriver if clock is None else BoottimeDriver
        driver = kind(loop, self._tick_ns, self._wheel_size, clock=clock)
        self._run_on(driver, outlives_cancelling=True)
        self._driver_task = DriverTask(driver)
        return self

    # The type checkers demand the type of a coroutine function.
    @coroutine_function
    def __aexit__(self, *exc_info: object) -> CoroutineType[Any, Any, None]:
        return cast("CoroutineType[Any, Any, None]", self.aclose())

    def share(self, loop: AbstractEventLoop) -> None:
        """Become the shared timer of *loop*; slices are plain callbacks, without a driver task."""
        self._is_shared = True
        self._run_on(LoopDriver(loop, self._tick_ns, self._wheel_size), outlives_cancelling=False)

    def _run_on(self, driver: Driver, *, outlives_cancelling: bool) -> None:
        self._threads = Threads(driver)
        self._tasks = PeriodicTasks(outlives_cancelling=outlives_cancelling)
        self._driver = driver  # last, because the calls of other threads look at this first

    @coroutine_function
    def aclose(self) -> Coroutine[Any, Any, None]:
        """Drop the pending deadlines and close; idempotent, and safe to call from several tasks.

        Callbacks are dropped and counted as cancelled, sleeping tasks get `TimerClosedError`,
        running coroutines of periodic calls are cancelled and awaited, and every later call raises
        `TimerClosedError`. Blocks under a timeout lose their deadline.

        Raises:
            RuntimeError: This is the shared timer of a loop, which is closed with the loop.
        """
        if self._is_shared:
            raise RuntimeError(_SHARED)
        return close_timer(self._close_now, self._driver_task, self._tasks)

    def _close_now(self) -> None:
        driver = self._driver
        if driver is not None and not driver.closed:
            driver.check()
            self._close_for_good()

    def _close_for_good(self) -> None:
        _close_parts(
            cast(Driver, self._driver),
            cast(Threads, self._threads),
            cast(PeriodicTasks, self._tasks),
        )

    def close_with_loop(self) -> None:
        """Drop the pending deadlines after the loop was closed; from any thread."""
        self._close_for_good()

    def open_driver(self) -> Driver:
        """Return the driver, for a caller on the right loop of an open timer.

        Raises:
            TimerClosedError: The timer is not open.
            ForeignLoopError: Called from another loop or thread.
        """
        driver = self._entered_driver()
        driver.check()
        return driver

    def _entered_driver(self) -> Driver:
        """Return the driver of an entered timer, without a check of the caller's loop."""
        driver = self._driver
        if driver is None:
            raise self._unusable()
        return driver

    def _unusable(self) -> RuntimeError:
        if self._wheel_size == 0:
            return RuntimeError(f"{type(self).__name__}.__init__ must call super().__init__()")
        return TimerClosedError(f"{self!r} is not open: use it inside `async with`")

    # --- callbacks --------------------------------------------------------------------------

    def call_later(
        self,
        delay: Delay,
        callback: Callable[[Unpack[Ts]], object],
        *args: Unpack[Ts],
        context: Context | None = None,
    ) -> TimerHandle:
        """Run `callback(*args)` after *delay*.

        Args:
            delay: Seconds or timedelta; `inf` is never; 0 or less is due now, and runs in a later
                turn of the loop, never inside this call.
            callback: A plain callable; the loop's exception handler gets its exceptions.
            args: The arguments of the callback.
            context: The context of the callback; default: a copy of the caller's, as in asyncio.

        Raises:
            TypeError: *delay* is not a number, or *callback* is not a plain callable.
            ValueError: *delay* is NaN.
            TimerClosedError: The timer is not open.
            ForeignLoopError: Called from another loop or thread.

        Cost: O(1).
        """
        return armed_after(self._entered_driver(), delay, callback, args, context)

    def call_at(
        self,
        when: Delay,
        callback: Callable[[Unpack[Ts]], object],
        *args: Unpack[Ts],
        context: Context | None = None,
    ) -> TimerHandle:
        """Run `callback(*args)` at *when*, seconds on the scale of `time()`; see `call_later`."""
        return armed_at(self._entered_driver(), when, callback, args, context)

    def call_later_threadsafe(
        self,
        delay: Delay,
        callback: Callable[[Unpack[Ts]], object],
        *args: Unpack[Ts],
        context: Context | None = None,
    ) -> ThreadsafeHandle:
        """Run `callback(*args)` on the loop's thread, *delay* from now; call this in any thread.

        Many calls share one wake-up of the loop. The handle is thread-safe as well.

        Raises:
            TimerClosedError: The timer is not open, or its loop is closed.
            TypeError, ValueError: As for `call_later`.
        """
        self._entered_driver()  # raises
        return cast(Threads, self._threads).call_later(delay, callback, args, context)

    def every(
        self,
        period: Delay,
        fn: Callable[[Unpack[Ts]], object],
        *args: Unpack[Ts],
        missed: Missed = "skip",
        jitter: Delay = 0.0,
        first: Delay | None = None,
    ) -> Periodic:
        """Call `fn(*args)` every *period*; if it returns a coroutine, that runs in a task group.

        Calls never overlap: a tick during a call is missed. The loop's exception handler gets the
        exceptions of *fn*. The function runs in a copy of the caller's context.

        Args:
            period: Seconds or timedelta, more than 0 and less than 73 years.
            fn: A plain or a coroutine function.
            args: The arguments of the function.
            missed: After missed ticks the function is called at once. Then "skip" continues with
                the next multiple of the period, "burst" makes up for all missed ticks without a
                pause, and "delay" counts a full period from that call.
            jitter: Each call is delayed by a random time from 0 to this, at most the period; the
                multiples of the period do not shift.
            first: When the first call is due, from now; default: after one period.

        Raises:
            ValueError: An argument is out of range.
            TypeError: An argument is not a number, or *fn* is not callable or an asynchronous
                generator function, of which a call runs nothing.
        """
        driver = self.open_driver()
        tasks = cast(PeriodicTasks, self._tasks)
        schedule = Schedule(driver, period, missed, jitter, first)
        periodic = Periodic(driver, tasks, schedule, fn, args)
        tasks.prepare(fn)
        periodic.arm()
        return periodic

    # --- waiting ----------------------------------------------------------------------------

    @overload
    def sleep(self, delay: Delay) -> Coroutine[Any, Any, None]: ...

    @overload
    def sleep(self, delay: Delay, result: T) -> Coroutine[Any, Any, T]: ...

    def sleep(self, delay: Delay, result: object = None) -> Coroutine[Any, Any, object]:
        """Wait for *delay*, then return *result*; 0 or less yields to the loop once.

        Raises:
            TimerClosedError: The timer is not open, or was closed meanwhile.
            TypeError, ValueError: *delay* is not a number, or is NaN.
        """
        driver = self.open_driver()
        delay_to_ns("delay", delay)  # raises here, not when the coroutine starts
        return sleep(driver, delay, result)

    def interval(
        self, period: Delay, *, missed: Missed = "skip", first: Delay | None = None
    ) -> AsyncIterator[float]:
        """Iterate over the ticks of *period*: `async for now in timer.interval(1.0)`.

        Each step waits for the next tick and yields the time, on the scale of `time()`. The body of
        the loop never overlaps itself; a body that is always late still lets other tasks run.

        Args:
            period: Seconds or timedelta, more than 0 and less than 73 years.
            missed: The rule for missed ticks; see `every`.
            first: When the first tick is due, from now; default: after one period.

        Raises:
            ValueError: An argument is out of range.
            TypeError: An argument is not a number.
            TimerClosedError: The timer is not open, or was closed during the iteration.
        """
        driver = self.open_driver()
        return Interval(driver, Schedule(driver, period, missed, 0, first))

    def timeout(self, delay: Delay | None) -> Timeout:
        """Limit a block to *delay* from now, None for no limit; as `asyncio.timeout`."""
        return timeout_after(self.open_driver(), delay)

    def timeout_at(self, when: Delay | None) -> Timeout:
        """Limit a block to *when* on the scale of `time()`; as `asyncio.timeout_at`."""
        return timeout_at(self.open_driver(), when)

    def move_on_after(self, delay: Delay | None) -> MoveOn:
        """End a block *delay* from now without an error; `expired()` is then true.

        ```python
        async with timer.move_on_after(0.5) as block:
            answer = await ask()
        if block.expired():
            answer = default
        ```
        """
        return move_on_after(self.open_driver(), delay)

    def move_on_at(self, when: Delay | None) -> MoveOn:
        """End a block at *when* on the scale of `time()`, without an error; see `move_on_after`."""
        return move_on_at(self.open_driver(), when)

    def wait_for(self, fut: Awaitable[T], timeout: Delay | None) -> Coroutine[Any, Any, T]:
        """Wait for *fut*, a future or coroutine, at most *timeout*; as `asyncio.wait_for`.

        Args:
            fut: The future or coroutine; it is cancelled at the timeout, or with this call.
            timeout: Seconds or timedelta, None for no limit; at 0 or less a coroutine never starts.

        Raises:
            TimeoutError: *fut* was not done in time.
            TypeError, ValueError: *timeout* is not a number, or is NaN.
        """
        driver = self.open_driver()
        if timeout is not None:
            delay_to_ns("timeout", timeout)  # raises here, not when the coroutine starts
        if not hasattr(fut, "__await__") and not isawaitable(fut):
            raise TypeError(f"fut must be a future or another awaitable, got {safe_repr(fut)}")
        return wait_for(driver, fut, timeout)

    # --- inspection -------------------------------------------------------------------------

    def time(self) -> float:
        """Return the time in seconds: `loop.time()`, or the time since boot for "boottime"."""
        return self._entered_driver().clock()

    @property
    def closed(self) -> bool:
        """Whether the timer was closed; False before it is entered."""
        return self._driver is not None and self._driver.closed

    def __len__(self) -> int:
        """The number of pending deadlines."""
        return 0 if self._driver is None else self._driver.counts.pending

    def __bool__(self) -> bool:
        """True even if nothing is pending: `timer or default` must not replace an idle timer."""
        return True

    def statistics(self) -> TimerStatistics:
        """Return a snapshot of the counts, from any thread. O(size of the lateness histogram)."""
        return self._entered_driver().statistics()

    def __repr__(self) -> str:
        if self._driver is None:
            state = "new"
        else:
            state = "closed" if self._driver.closed else f"pending={len(self)}"
        return f"<{type(self).__name__} tick={ns_to_seconds(self._tick_ns)} {state}>"


def _close_parts(driver: Driver, threads: Threads, tasks: PeriodicTasks) -> None:
    try:
        driver.close()
    finally:
        threads.close()
        tasks.close()


def _close_anywhere(driver: Driver, threads: Threads, tasks: PeriodicTasks) -> None:
    """Close the parts of a dropped timer, on the thread of the loop if it runs.

    The collector calls a finalizer in any thread. There, closing would cancel an alarm and wake
    tasks of a loop that runs in another one.
    """
    loop = driver.loop
    try:
        driver.check_thread()
    except ForeignLoopError:
        if loop is not None and not driver.closed:
            loop.call_soon_threadsafe(_close_parts, driver, threads, tasks, context=Context())
            return
    _close_parts(driver, threads, tasks)


def _checked_clock(clock: object) -> Callable[[], float] | None:
    """Return the function that reads the clock named *clock*; None for the clock of the loop."""
    if checked_choice("clock", clock, _CLOCKS) == "monotonic":
        return None
    read = boottime_clock()
    if read is None:
        raise ValueError("clock must be 'monotonic' on a system other than Linux, got 'boottime'")
    return read
