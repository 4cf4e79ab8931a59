"""A block of code with a deadline. Rank 1.

It behaves as `asyncio.Timeout` of the running Python, whose source is the specification.
"""

from __future__ import annotations

import math
import sys
from asyncio import CancelledError, Future, Task, current_task
from collections.abc import Generator
from types import CoroutineType, TracebackType
from typing import Any, Final, cast

from mypy_extensions import i64, mypyc_attr

from aiowheel._types import Delay
from aiowheel._units import FOREVER, clock_to_ns, delay_to_ns, ns_to_seconds
from aiowheel.errors import TimerClosedError
from aiowheel.timer._driver import Driver, TimerTask

_CREATED: Final = 0
_ENTERED: Final = 1
_EXPIRING: Final = 2
_EXPIRED: Final = 3
_EXITED: Final = 4
_NAMES: Final = ("created", "active", "expiring", "expired", "finished")

#: Since 3.13 TimeoutError also becomes the context of an exception that replaced the cancellation.
_LOOKS_INSIDE: Final = sys.version_info >= (3, 13)
#: Since 3.13 a subclass of CancelledError counts as the cancellation.
_TAKES_SUBCLASSES: Final = sys.version_info >= (3, 13)


class Timeout:
    """A deadline for a block of code: use it in `async with`, once. `timeout` creates it.

    At the deadline the task is cancelled, and the block raises `TimeoutError` instead of
    `CancelledError`. Timeouts nest with each other, with asyncio's own and with task groups.
    """

    __slots__ = (
        "_cancelling",
        "_deadline",
        "_driver",
        "_expiry",
        "_moves_on",
        "_soon",
        "_state",
        "_task",
        "_when",
    )

    def __init__(self, driver: Driver, deadline: i64, when: object = None) -> None:
        self._driver = driver
        self._deadline = deadline
        self._when = when  # the caller's own number, if there was one; `when` returns it
        self._moves_on = False
        self._state: i64 = _CREATED
        self._task: Task[object] | None = None
        self._cancelling = 0
        self._expiry: Expiry | None = None
        self._soon: i64 = 0  # scheduled calls of `_expire_if_due`; only the last one has an effect

    def when(self) -> float | None:
        """Return the deadline in seconds on the scale of `timer.time()`; None for no deadline."""
        when = self._when
        if type(when) is float:
            return when
        if when is None and self._deadline == FOREVER:
            return None
        return ns_to_seconds(self._deadline)

    def reschedule(self, when: Delay | None) -> None:
        """Move the deadline; None removes it, and a past one expires in the loop's next turn.

        Cost: one write if the new deadline is later, O(1) if it is earlier.

        Raises:
            RuntimeError: The block was not entered yet, is expiring, or has ended.
            TimerClosedError: The timer was closed.
            ForeignLoopError: Called from another loop or thread than the timer's.
        """
        if self._state != _ENTERED:
            if self._state == _CREATED:
                raise RuntimeError("Timeout has not been entered")
            raise RuntimeError(f"Cannot change state of {_NAMES[self._state]} Timeout")
        deadline = FOREVER if when is None else delay_to_ns("when", when)
        driver = self._driver
        now = driver.checked_now()
        expiry = self._expiry
        if expiry is not None and now < deadline < FOREVER:
            driver.move(expiry, deadline, now)
            self._deadline = deadline
            self._when = when
            return
        self._deadline = deadline
        self._when = when
        self._disarm()
        self._arm()

    def expired(self) -> bool:
        """Return whether the deadline was reached while the block ran."""
        return self._state in (_EXPIRING, _EXPIRED)

    async def __aenter__(self) -> Timeout:
        self._enter()
        return self

    def _enter(self) -> None:
        if self._state != _CREATED:
            raise RuntimeError("Timeout has already been entered")
        self._driver.check()
        task = current_task(self._driver.loop)
        if task is None:
            raise RuntimeError("Timeout should be used inside a task")
        self._state = _ENTERED
        self._task = task
        self._cancelling = task.cancelling()
        self._arm()

    def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> CoroutineType[Any, Any, bool | None]:
        self._disarm()
        task = self._task
        self._task = None
        if self._state == _EXPIRING:
            self._state = _EXPIRED
            # If there are no more cancellations than at the start, the timeout's was the only one.
            if task is not None and task.uncancel() <= self._cancelling and exc_val is not None:
                if exc_type is CancelledError or (
                    _TAKES_SUBCLASSES and isinstance(exc_val, CancelledError)
                ):
                    if self._moves_on:
                        return _TRUE
                    raise _caused_by(exc_val)
                if _LOOKS_INSIDE and not self._moves_on:
                    _insert_timeout_error(exc_val)
                    if isinstance(exc_val, ExceptionGroup):
                        for inner in cast("ExceptionGroup[Exception]", exc_val).exceptions:
                            _insert_timeout_error(inner)
        elif self._state == _ENTERED:
            self._state = _EXITED
        return _NONE

    def _arm(self) -> None:
        deadline = self._deadline
        if deadline == FOREVER:
            return
        driver = self._driver
        now = driver.now_ns()
        loop = driver.loop
        if deadline <= now and loop is not None:
            # As in asyncio, the block expires before any callback that is scheduled after this. The
            # driver would expire the block one turn later.
            self._soon += 1
            loop.call_soon(self._expire_if_due)
        else:
            self._expiry = Expiry(deadline, self)
            driver.arm(self._expiry, now)

    def _disarm(self) -> None:
        expiry = self._expiry
        if expiry is not None:
            self._expiry = None
            expiry.cancel()

    def _expire_if_due(self) -> None:
        self._soon -= 1
        # Meanwhile the block may have ended, or its deadline may have been moved.
        if self._soon > 0 or self._state != _ENTERED:
            return
        driver = self._driver
        if self._deadline <= driver.now_ns():
            self._disarm()
            self._on_timeout()
        elif self._expiry is None and not driver.closed:  # the clock was set back
            self._arm()

    def _on_timeout(self) -> None:
        self._expiry = None
        self._state = _EXPIRING
        cast("Task[object]", self._task).cancel()

    def __repr__(self) -> str:
        if self._state != _ENTERED:
            return f"<Timeout [{_NAMES[self._state]}]>"
        when = self.when()
        shown = None if when is None else round(when, 3)
        return f"<Timeout [{_NAMES[self._state]}] when={shown}>"


@mypyc_attr(acyclic=True, free_list_len=1)
class Expiry(TimerTask):
    """The deadline of a `Timeout`, which is its payload."""

    __slots__ = ()

    def fire(self) -> None:
        timeout = cast(Timeout, self._payload)
        self._payload = None
        timeout._on_timeout()


class MoveOn(Timeout):
    """A `Timeout` whose block ends at the deadline without an error; see `move_on_after`."""

    __slots__ = ()

    def __init__(self, driver: Driver, deadline: i64, when: object = None) -> None:
        super().__init__(driver, deadline, when)
        self._moves_on = True

    async def __aenter__(self) -> MoveOn:
        self._enter()
        return self

    def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> CoroutineType[Any, Any, bool]:
        ended = super().__aexit__(exc_type, exc_val, exc_tb)
        return cast("CoroutineType[Any, Any, bool]", ended)


@mypyc_attr(acyclic=True, free_list_len=1)
class Wakeup(TimerTask):
    """The deadline of a sleeping task; its payload is the future that the task awaits."""

    __slots__ = ()

    def fire(self) -> None:
        future = cast("Future[None]", self._payload)
        self._payload = None
        if not future.done():
            future.set_result(None)

    def drop(self) -> None:
        future = cast("Future[None]", self._payload)
        self._payload = None
        if not future.done() and not future.get_loop().is_closed():
            future.set_exception(TimerClosedError("the timer was closed while a task slept on it"))


# Awaitables for `__aexit__` that never suspend: a coroutine object would cost more than all other
# work at the end of a block. Type checkers demand the type of a coroutine function for `__aexit__`;
# only an `await` uses the object.


class ReadyNone:
    """An awaitable that returns None at once."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        return cast("Generator[None, None, None]", iter(_EMPTY))  # any iterator is accepted


class ReadyTrue:
    """An awaitable that returns True at once."""

    __slots__ = ()

    def __await__(self) -> ReadyTrue:
        return self

    def __iter__(self) -> ReadyTrue:
        return self

    def __next__(self) -> object:
        raise StopIteration(True)


_EMPTY: Final[tuple[None, ...]] = ()
_NONE: Final = cast("CoroutineType[Any, Any, bool | None]", ReadyNone())
_TRUE: Final = cast("CoroutineType[Any, Any, bool | None]", ReadyTrue())


def _caused_by(cancelled: BaseException) -> TimeoutError:
    error = TimeoutError()
    error.__cause__ = cancelled  # mypyc drops the second half of `raise ... from`
    return error


def _insert_timeout_error(error: BaseException) -> None:
    """Insert a TimeoutError before the CancelledError in the chain of contexts of *error*."""
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
    """Create a timeout *delay* from now, for the driver of an open timer on the running loop."""
    deadline = _deadline_after(driver, delay)
    return Timeout(
        driver, deadline, math.inf if delay is not None and deadline == FOREVER else None
    )


def move_on_after(driver: Driver, delay: object) -> MoveOn:
    """Create a block that ends *delay* from now, for the driver of an open timer."""
    deadline = _deadline_after(driver, delay)
    return MoveOn(driver, deadline, math.inf if delay is not None and deadline == FOREVER else None)


def _deadline_after(driver: Driver, delay: object) -> i64:
    if delay is None:
        return FOREVER
    delay_ns = delay_to_ns("delay", delay)
    if delay_ns == FOREVER:
        return FOREVER
    loop = driver.loop
    if delay_ns <= 0 and loop is not None and driver.reads_monotonic:
        # `when()` must not be after `loop.time()`, which on uvloop is up to 1 ms behind the clock.
        return clock_to_ns(loop.time()) + delay_ns
    return driver.deadline_after(delay_ns)


def timeout_at(driver: Driver, when: object) -> Timeout:
    """Create a timeout for the time *when*; None for no deadline."""
    return Timeout(driver, FOREVER if when is None else delay_to_ns("when", when), when)


def move_on_at(driver: Driver, when: object) -> MoveOn:
    """Create a block that ends at the time *when*; None for no deadline."""
    return MoveOn(driver, FOREVER if when is None else delay_to_ns("when", when), when)
