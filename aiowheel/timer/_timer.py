"""The running timer: callbacks, sleeps and timeouts on one wheel. Rank 1."""

from __future__ import annotations

import warnings
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from typing import TypeVar, TypeVarTuple, Unpack, cast

from mypy_extensions import i64

from aiowheel._units import FOREVER, delay_to_ns, ns_to_seconds
from aiowheel.errors import TimerClosedError
from aiowheel.timer._driver import Driver
from aiowheel.timer._driver_task import DriverTask
from aiowheel.timer._ending import end
from aiowheel.timer._handle import TimerHandle, armed_after, armed_at
from aiowheel.timer._jobs import Jobs
from aiowheel.timer._loop_driver import LoopDriver
from aiowheel.timer._periodic import Periodic
from aiowheel.timer._sleep import sleep_on
from aiowheel.timer._statistics import TimerStatistics, statistics_of
from aiowheel.timer._threads import Threads, ThreadsafeHandle
from aiowheel.timer._timeout import Timeout, timeout_after
from aiowheel.timer._wait_for import wait_for
from aiowheel.wheel._limits import checked_geometry

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Timer:
    """Arms, cancels and moves deadlines at O(1) each, on one armed timer of the event loop.

    `async with` it: it then belongs to the running loop until the block ends. No deadline fires
    early; each is late by less than a tick, plus the loop's own delay. Deadlines fire tick by tick,
    and within a tick in the order they were armed; one that was moved later takes its place when it
    is filed again.

    Times are seconds, as float, int or timedelta, kept as whole nanoseconds.

    Args:
        tick: From 1 microsecond to 1 hour: how late a deadline may be by itself.
        wheel_size: Buckets a level, at least 2.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(self, *, tick: object = 0.001, wheel_size: int = 256) -> None:
        self._tick_ns: i64 = delay_to_ns("tick", tick)
        if not 1_000 <= self._tick_ns <= 3_600_000_000_000:
            raise ValueError(f"tick must be from 1 microsecond to 1 hour, got {tick!r}")
        checked_geometry(self._tick_ns, wheel_size, 0)
        self._wheel_size = wheel_size
        self._driver: Driver | None = None  # None before it is entered, as the two below
        self._threads: Threads | None = None
        self._jobs: Jobs | None = None
        self._task: DriverTask | None = None

    def __del__(self) -> None:
        # Handles know the driver and not the timer, so this runs even with a million pending;
        # their rings of links must be broken by hand.
        driver = getattr(self, "_driver", None)
        if driver is None:
            return
        if self._task is not None and not driver.closed:
            self._task.abandon()
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)
        self.close_for_good()
        cast(Jobs, self._jobs).abandon()

    # --- life -------------------------------------------------------------------------------

    async def __aenter__(self) -> Timer:
        if self._driver is not None:
            raise TimerClosedError("a Timer can be entered once; make another")
        driver = LoopDriver(get_running_loop(), self._tick_ns, self._wheel_size)
        self._run_on(driver, Jobs(outlives_cancelling=True))
        self._task = DriverTask(driver)
        return self

    def __aexit__(self, *exc_info: object) -> Coroutine[object, object, None]:
        return self.aclose()

    def bind(self, loop: AbstractEventLoop) -> None:
        """Belong to *loop* without a driver task: slices run as plain callbacks of the loop."""
        driver = LoopDriver(loop, self._tick_ns, self._wheel_size)
        self._run_on(driver, Jobs(outlives_cancelling=False))

    def _run_on(self, driver: Driver, jobs: Jobs) -> None:
        self._driver = driver
        self._threads = Threads(driver)
        self._jobs = jobs

    def aclose(self) -> Coroutine[object, object, None]:
        """Drop what is pending and stop; idempotent, and safe to call from several tasks.

        Callbacks are dropped and counted as cancelled, sleepers get `TimerClosedError`, running
        coroutines of periodic calls are cancelled and waited for, and every later call raises
        `TimerClosedError`. Blocks under a timeout lose their bound.
        """
        return end(self.close_now, self._task, self._jobs)

    def close_now(self) -> None:
        """The half of `aclose` that has nothing to wait for."""
        driver = self._driver
        if driver is not None and not driver.closed:
            driver.check()
            self.close_for_good()

    def close_for_good(self) -> None:
        """Drop what is pending, whoever asks: the loop was closed, or nobody knows the timer."""
        cast(Driver, self._driver).close()
        cast(Threads, self._threads).close()
        cast(Jobs, self._jobs).close()

    def open_driver(self) -> Driver:
        """The driver, for a caller on the right loop of an open timer."""
        driver = self._driver
        if driver is None:
            raise TimerClosedError(f"{self!r} is not open: use it inside `async with`")
        driver.check()
        return driver

    def _entered_driver(self) -> Driver:
        """The driver, for what checks the caller itself."""
        driver = self._driver
        return self.open_driver() if driver is None else driver

    # --- callbacks --------------------------------------------------------------------------

    def call_later(
        self,
        delay: object,
        callback: Callable[[Unpack[Ts]], object],
        *args: Unpack[Ts],
        context: Context | None = None,
    ) -> TimerHandle:
        """Run `callback(*args)` after *delay*.

        Args:
            delay: Seconds or timedelta; `inf` is never; 0 or less is due now, and runs on a later
                pass of the loop, never inside this call.
            callback: A plain callable; what it raises goes to the loop's exception handler.
            args: For the callback.
            context: To run it in; default: a copy of the caller's, as asyncio does.

        Raises:
            TypeError: *delay* is no number, or *callback* is not callable.
            ValueError: *delay* is NaN.
            TimerClosedError: The timer is not open.
            ForeignLoopError: Called from another loop or thread.

        Cost: O(1).
        """
        return armed_after(self._entered_driver(), delay, callback, args, context)

    def call_at(
        self,
        when: object,
        callback: Callable[[Unpack[Ts]], object],
        *args: Unpack[Ts],
        context: Context | None = None,
    ) -> TimerHandle:
        """Run `callback(*args)` at *when*, seconds on the scale of `time()`; see `call_later`."""
        return armed_at(self._entered_driver(), when, callback, args, context)

    def call_later_threadsafe(
        self,
        delay: object,
        callback: Callable[[Unpack[Ts]], object],
        *args: Unpack[Ts],
    ) -> ThreadsafeHandle:
        """`call_later` from any thread: the callback runs on the loop's, *delay* from now.

        Many calls share one wake-up of the loop. The handle is thread-safe, too.

        Raises:
            TimerClosedError: The timer is not open, or its loop is closed.
        """
        threads = self._threads
        if threads is None:
            raise TimerClosedError(f"{self!r} is not open: use it inside `async with`")
        return threads.call_later(delay, callback, args)

    def every(
        self,
        period: object,
        fn: Callable[[Unpack[Ts]], object],
        *args: Unpack[Ts],
        missed: str = "skip",
        jitter: object = 0.0,
        first: object = None,
    ) -> Periodic:
        """Call `fn(*args)` every *period*; a coroutine it returns is awaited in a task group.

        Calls never overlap: a tick that comes while one is under way is missed. What *fn* raises
        goes to the loop's exception handler. It runs in a copy of the caller's context.

        Args:
            period: Seconds or timedelta, more than 0.
            fn: A plain or a coroutine function.
            args: For the function.
            missed: After ticks were missed, the first is made up for at once. Then: "skip" goes on
                with the next multiple of the period; "burst" makes up for all, without a pause;
                "delay" counts a full period from there.
            jitter: Each call comes later by a random time from 0 to this, at most the period; the
                multiples stay where they are.
            first: When the first call is due, from now; default: after one period.

        Raises:
            ValueError: An argument is out of range.
            TypeError: An argument is no number, or *fn* is not callable.
        """
        driver = self.open_driver()
        jobs = cast(Jobs, self._jobs)
        periodic = Periodic(driver, jobs, fn, args)
        periodic.begin(period, missed, jitter, first)
        jobs.prepare(fn)
        return periodic

    # --- waiting ----------------------------------------------------------------------------

    def sleep(self, delay: object, result: T = None) -> Coroutine[object, object, T]:  # type: ignore[assignment]
        """Wait for *delay*, then return *result*; 0 or less yields to the loop once.

        Raises:
            TimerClosedError: The timer was closed meanwhile.
        """
        return sleep_on(self.open_driver(), delay, result)

    def timeout(self, delay: object) -> Timeout:
        """Bound a block to *delay* from now, None for no bound; as `asyncio.timeout`."""
        return timeout_after(self.open_driver(), delay)

    def timeout_at(self, when: object) -> Timeout:
        """Bound a block to *when* on the scale of `time()`; as `asyncio.timeout_at`."""
        driver = self.open_driver()
        return Timeout(driver, FOREVER if when is None else delay_to_ns("when", when), when)

    def wait_for(self, fut: Awaitable[T], timeout: object) -> Coroutine[object, object, T]:
        """Wait for *fut*, a future or coroutine, at most *timeout*; as `asyncio.wait_for`.

        Args:
            fut: Cancelled when time is up, or when this call is.
            timeout: Seconds or timedelta, None for no bound; at 0 or less a coroutine never starts.

        Raises:
            TimeoutError: Time was up.
        """
        return wait_for(self.open_driver(), fut, timeout)

    # --- looking in -------------------------------------------------------------------------

    def time(self) -> float:
        """The time in seconds on the scale of `loop.time()`."""
        driver = self._driver
        if driver is None:
            raise TimerClosedError(f"{self!r} has not been entered: use `async with`")
        return driver.clock()

    def __len__(self) -> int:
        return 0 if self._driver is None else self._driver.pending

    def statistics(self) -> TimerStatistics:
        """A snapshot of the counts, from any thread. O(size of the lateness histogram)."""
        driver = self._driver
        if driver is None:
            raise TimerClosedError(f"{self!r} has not been entered: use `async with`")
        return statistics_of(driver)

    def __repr__(self) -> str:
        if self._driver is None:
            state = "new"
        else:
            state = "closed" if self._driver.closed else f"pending={len(self)}"
        return f"<{type(self).__name__} tick={ns_to_seconds(self._tick_ns)} {state}>"
