"""A timer whose clock moves only in calls of `advance`. Rank 1: no loop, no waiting."""

from __future__ import annotations

from typing import Final, cast

from mypy_extensions import i64

from aiowheel._arguments import safe_repr
from aiowheel._types import Count, Delay
from aiowheel._units import FOREVER, delay_to_ns, ns_to_seconds
from aiowheel.timer._driver import Driver
from aiowheel.timer._timer import Timer

#: The longest chain of callbacks at one instant that each arm the next one.
MOST_LINKS: Final = 100_000


class ManualDriver(Driver):
    """A driver whose clock stands still until `ManualTimer.advance` moves it."""

    def __init__(self, tick_ns: int, wheel_size: int) -> None:
        self.manual_ns: i64 = 0
        self.errors: list[BaseException] = []
        super().__init__(self._read, tick_ns, wheel_size, None)

    def _read(self) -> float:
        return ns_to_seconds(self.manual_ns)

    def now_ns(self) -> i64:
        return self.manual_ns

    def wake_at(self, due_ns: i64, now_ns: i64) -> None:
        """Do nothing: `advance` reads the wheel's next expiration."""

    def wake_again(self) -> None:
        """Do nothing: `advance` runs slices until the pass is over."""

    def report(self, context: dict[str, object]) -> None:
        self.errors.append(cast(BaseException, context["exception"]))


class ManualTimer(Timer):
    """A `Timer` without a loop, whose time passes only in `advance`.

    Deadlines are due by the same rule as on a `Timer`. Time begins at 0. The timer needs no
    `async with` and no running loop; only `sleep`, `interval` and the timeouts, which suspend
    tasks, need a loop.
    """

    def __init__(self, *, tick: Delay = 0.001, wheel_size: Count = 256) -> None:
        super().__init__(tick=tick, wheel_size=wheel_size)
        self._manual = ManualDriver(self._tick_ns, self._wheel_size)
        self._run_on(self._manual, outlives_cancelling=True)

    async def __aenter__(self) -> ManualTimer:
        return self

    def advance(self, seconds: Delay) -> int:
        """Let *seconds* pass and fire the deadlines that come due, each at its own tick.

        A deadline that is due when it is armed, such as a delay of 0, never fires inside the call
        that arms it: it fires in the next `advance`, which may be `advance(0)`, or in the current
        one if a callback arms it. A chain of 100,000 callbacks that each arm the next one for the
        same instant is refused, because time would never pass.

        Returns:
            The number of deadlines that fired.

        Raises:
            ValueError: *seconds* is negative or not finite, or the time would exceed 73 years.
            RuntimeError: Callbacks arm deadlines for one instant without an end. Time stays there.
                The exceptions of the callbacks, if there are any, are the cause.
            ExceptionGroup: Callbacks raised; the other callbacks have run. A BaseExceptionGroup if
                one of the exceptions, such as CancelledError, is not an Exception.
        """
        step = delay_to_ns("seconds", seconds)
        if not 0 <= step < FOREVER:
            raise ValueError(f"seconds must be from 0 to 73 years, got {safe_repr(seconds)}")
        driver = self._manual
        driver.check()
        target = driver.manual_ns + step
        if target >= FOREVER:
            raise ValueError(
                f"seconds must end within 73 years of 0, got {safe_repr(seconds)} at {self.time()}"
            )
        fired = driver.fired
        links: i64 = 0  # of a chain at one instant
        while True:
            driver.run_slice()
            if driver.wheel.pass_is_open():
                continue
            upcoming = driver.wheel.next_expiration()
            if upcoming is None or upcoming > target:
                break
            links = 0 if upcoming > driver.manual_ns else links + 1
            if links >= MOST_LINKS:
                raise self._endless()
            driver.manual_ns = max(upcoming, driver.manual_ns)
        driver.manual_ns = max(target, driver.manual_ns)  # a callback may have called `advance`
        if driver.errors:
            raise self._failed()  # in a variable, it would be in a cycle with this frame
        return driver.fired - fired

    def _failed(self) -> BaseException:
        """Return the exceptions of the callbacks, of which there are some, and forget them."""
        errors, self._manual.errors = self._manual.errors, []
        return BaseExceptionGroup("timer callbacks failed", errors)

    def _endless(self) -> RuntimeError:
        driver = self._manual
        due = [entry for entry in driver.wheel.pending() if entry.deadline <= driver.manual_ns]
        error = RuntimeError(
            f"callbacks armed deadlines for the time at {self.time()} {MOST_LINKS} times in a row, "
            f"the last for {safe_repr(due[0].payload)}: time would never pass"
        )
        if driver.errors:
            error.__cause__ = self._failed()  # mypyc drops the second half of `raise ... from`
        return error
