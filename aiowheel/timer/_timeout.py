"""A block of code with a deadline. Rank 1.

Behaves as `asyncio.Timeout` of the running Python does; its source is the specification.
"""

from __future__ import annotations

import math
import sys
from asyncio import CancelledError, Task, current_task
from collections.abc import Awaitable
from types import TracebackType
from typing import Final, cast

from mypy_extensions import i64, mypyc_attr

from aiowheel._units import FOREVER, clock_to_ns, delay_to_ns, ns_to_seconds
from aiowheel.timer._alarm import Alarm
from aiowheel.timer._driver import Driver
from aiowheel.timer._ready import ReadyNone

_CREATED: Final = 0
_ENTERED: Final = 1
_EXPIRING: Final = 2
_EXPIRED: Final = 3
_EXITED: Final = 4
_NAMES: Final = ("created", "active", "expiring", "expired", "finished")

_NOTHING: Final = ReadyNone()

#: Since 3.13 a timeout also shows inside an exception that hides the cancellation.
_LOOKS_INSIDE: Final = sys.version_info >= (3, 13)


class Timeout:
    """Made by `timeout` and `timeout_at`; `async with` it, once.

    The task is cancelled when the deadline comes, and the cancellation leaves the block as
    `TimeoutError`. Nests with asyncio's own timeouts and with task groups.
    """

    __slots__ = (
        "_alarm",
        "_cancelling",
        "_deadline",
        "_driver",
        "_soon",
        "_state",
        "_task",
        "_when",
    )

    def __init__(self, driver: Driver, deadline: i64, when: object = None) -> None:
        self._driver = driver
        self._deadline = deadline
        self._when = when  # the caller's own number, where there was one: handed back as given
        self._state: i64 = _CREATED
        self._task: Task[object] | None = None
        self._cancelling = 0
        self._alarm: TimeoutAlarm | None = None
        self._soon: i64 = 0  # calls of `_expire_if_due` on their way; the last one counts

    def when(self) -> float | None:
        """The deadline in seconds on the scale of `timer.time()`; None when there is none."""
        when = self._when
        if type(when) is float:
            return when
        if when is None and self._deadline == FOREVER:
            return None
        return ns_to_seconds(self._deadline)

    def reschedule(self, when: object) -> None:
        """Move the deadline, None for none; one already past expires on the loop's next turn.

        Cost: one write when it moves later, O(1) when earlier.

        Raises:
            RuntimeError: The block was not entered yet, or is expiring or over.
            TimerClosedError: The timer was closed.
            ForeignLoopError: Called from another loop or thread than the timer's.
        """
        if self._state != _ENTERED:
            if self._state == _CREATED:
                raise RuntimeError("Timeout has not been entered")
            raise RuntimeError(f"Cannot change state of {_NAMES[self._state]} Timeout")
        deadline = FOREVER if when is None else delay_to_ns("when", when)
        now = self._driver.checked_now()
        self._deadline = deadline
        self._when = when
        alarm = self._alarm
        if alarm is not None and now < deadline < FOREVER:
            self._driver.move(alarm, deadline)
            return
        self._disarm()
        self._arm()

    def expired(self) -> bool:
        """Whether the deadline came while the block ran."""
        return self._state in (_EXPIRING, _EXPIRED)

    async def __aenter__(self) -> Timeout:
        if self._state != _CREATED:
            raise RuntimeError("Timeout has already been entered")
        task = current_task(self._driver.loop)
        if task is None:
            raise RuntimeError("Timeout should be used inside a task")
        if self._driver.closed:
            self._driver.check()  # raises
        self._state = _ENTERED
        self._task = task
        self._cancelling = task.cancelling()
        self._arm()
        return self

    def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> Awaitable[None]:
        self._disarm()
        task = self._task
        self._task = None
        if self._state == _EXPIRING:
            self._state = _EXPIRED
            # Fewer requests pending than when we came in: ours was the only one.
            if task is not None and task.uncancel() <= self._cancelling and exc_val is not None:
                if isinstance(exc_val, CancelledError):
                    raise _caused_by(exc_val)
                if _LOOKS_INSIDE:
                    _insert_timeout_error(exc_val)
                    if isinstance(exc_val, ExceptionGroup):
                        for inner in cast("ExceptionGroup[Exception]", exc_val).exceptions:
                            _insert_timeout_error(inner)
        elif self._state == _ENTERED:
            self._state = _EXITED
        return _NOTHING

    def _arm(self) -> None:
        deadline = self._deadline
        if deadline == FOREVER:
            return
        driver = self._driver
        now = driver.now_ns()
        loop = driver.loop
        if deadline <= now and loop is not None:
            # As asyncio: before whatever the loop gets to do after this turn. The driver would
            # come a turn or two later.
            self._soon += 1
            loop.call_soon(self._expire_if_due)
        else:
            self._alarm = TimeoutAlarm(deadline, self)
            driver.arm(self._alarm, now)

    def _disarm(self) -> None:
        alarm = self._alarm
        if alarm is not None:
            self._alarm = None
            alarm.cancel()

    def _expire_if_due(self) -> None:
        self._soon -= 1
        # The block may have ended meanwhile, or got more time.
        due = self._soon == 0 and self._deadline <= self._driver.now_ns()
        if due and self._state == _ENTERED:
            self._disarm()
            self._on_timeout()

    def _on_timeout(self) -> None:
        task = self._task
        if task is not None:
            self._alarm = None
            self._state = _EXPIRING
            task.cancel()

    def __repr__(self) -> str:
        if self._state != _ENTERED:
            return f"<Timeout [{_NAMES[self._state]}]>"
        when = self.when()
        shown = None if when is None else round(when, 3)
        return f"<Timeout [{_NAMES[self._state]}] when={shown}>"


@mypyc_attr(acyclic=True, free_list_len=1)
class TimeoutAlarm(Alarm):
    """Expires a `Timeout`, its payload."""

    __slots__ = ()

    def fire(self) -> None:
        timeout = cast(Timeout, self._payload)
        self._payload = None
        timeout._on_timeout()


def _caused_by(cancelled: BaseException) -> TimeoutError:
    error = TimeoutError()
    error.__cause__ = cancelled  # mypyc drops the second half of `raise ... from`
    return error


def _insert_timeout_error(error: BaseException) -> None:
    """Put a TimeoutError in front of the CancelledError that *error* was raised while handling."""
    outer = error
    while outer.__context__ is not None:
        inner = outer.__context__
        if isinstance(inner, CancelledError):
            raised = TimeoutError()
            raised.__context__ = raised.__cause__ = inner
            outer.__context__ = raised
            break
        outer = inner


def timeout_after(driver: Driver, delay: object) -> Timeout:
    """`Timer.timeout`, for the driver of an open timer on the running loop."""
    if delay is None:
        return Timeout(driver, FOREVER)
    delay_ns = delay_to_ns("delay", delay)
    if delay_ns == FOREVER:
        return Timeout(driver, FOREVER, math.inf)
    loop = driver.loop
    if delay_ns <= 0 and loop is not None:
        # Over already, and so must `when()` say: uvloop's time lags ours by up to 1 ms.
        return Timeout(driver, clock_to_ns(loop.time()) + delay_ns)
    return Timeout(driver, driver.deadline_after(delay_ns))
