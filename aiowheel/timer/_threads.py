"""Deadlines armed and withdrawn by other threads than the loop's. Rank 1."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, copy_context
from threading import Lock
from typing import Final, cast

from mypy_extensions import i64

from aiowheel._units import FOREVER, delay_to_ns, ns_to_seconds
from aiowheel.errors import TimerClosedError
from aiowheel.timer._alarm import Alarm
from aiowheel.timer._driver import Driver
from aiowheel.timer._inbox import Inbox

_PENDING: Final = 0
_FIRED: Final = 1
_CANCELLED: Final = 2
_NAMES: Final = ("pending", "fired", "cancelled")


# Not acyclic: a handle that still waits in the inbox is in no wheel, and only a wheel shows the
# collector what an acyclic entry refers to.
class ThreadsafeHandle(Alarm):
    """What `call_later_threadsafe` returns; every method may be called from any thread.

    Exactly one of firing, cancelling and closing the timer wins.
    """

    __slots__ = ("_args", "_armed", "_claim", "_context", "_state", "_threads")

    def __init__(
        self, threads: Threads, deadline: i64, callback: object, args: tuple[object, ...]
    ) -> None:
        super().__init__(deadline, callback)
        self._threads = threads
        self._args = args
        self._context: Context | None = copy_context()
        self._claim = Lock()  # taken once, by whoever decides what becomes of the callback
        self._state: i64 = _PENDING  # written once, by the same
        self._armed = False  # only the loop's thread reads and writes it

    def when(self) -> float:
        """The deadline in seconds on the scale of `timer.time()`; `inf` for never."""
        return ns_to_seconds(self._deadline)

    def cancel(self) -> bool:
        """Withdraw the callback; True exactly once, and only if the callback will never run."""
        if not self._decide(_CANCELLED):
            return False
        self._let_go()
        self._threads.tell(self)
        return True

    def cancelled(self) -> bool:
        """Whether the callback will never run: withdrawn, or its timer or loop was closed."""
        if self._threads.loop_is_closed():
            self.cancel()
        return self._state == _CANCELLED

    def fired(self) -> bool:
        """Whether the callback's turn has come; true already while it runs."""
        return self._state == _FIRED

    def arrive(self) -> None:
        """On the loop's thread: arm what is new, withdraw what was cancelled after it was armed."""
        if self._armed:
            self.withdraw()
        elif self._state == _PENDING:
            self._armed = True
            driver = self._threads.driver
            driver.arm(self, driver.now_ns())

    def withdraw(self) -> None:
        """On the loop's thread: leave the wheel."""
        super().cancel()

    def fire(self) -> None:
        if not self._decide(_FIRED):
            return  # cancelled a moment ago, and the word is on its way
        callback, args, context = self._payload, self._args, cast(Context, self._context)
        self._let_go()
        context.run(cast(Callable[..., object], callback), *args)

    def drop(self) -> None:
        if self._decide(_CANCELLED):
            self._let_go()

    def _decide(self, state: i64) -> bool:
        if not self._claim.acquire(blocking=False):
            return False
        self._state = state
        return True

    def _let_go(self) -> None:
        self._payload = None
        self._args = ()
        self._context = None

    def __repr__(self) -> str:
        return f"<ThreadsafeHandle when={self.when()} {_NAMES[self._state]}>"


class Threads:
    """A timer's door for other threads: what comes through is armed on the loop's thread.

    Without a loop (`ManualTimer`) there is no thread of its own either: it is armed at once.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._inbox: Inbox[ThreadsafeHandle] | None = None
        if driver.loop is not None:
            self._inbox = Inbox(driver.loop, ThreadsafeHandle.arrive, TimerClosedError)

    def call_later(
        self, delay: object, callback: object, args: tuple[object, ...]
    ) -> ThreadsafeHandle:
        """See `Timer.call_later_threadsafe`."""
        if not callable(callback):
            raise TypeError(f"callback must be callable, got {callback!r}")
        delay_ns = max(delay_to_ns("delay", delay), 0)
        deadline = min(self.driver.now_ns() + delay_ns, FOREVER)
        handle = ThreadsafeHandle(self, deadline, callback, args)
        if self._inbox is not None:
            self._inbox.put(handle)
        else:
            self.driver.check()
            handle.arrive()
        return handle

    def tell(self, handle: ThreadsafeHandle) -> None:
        """Have the loop's thread look at a handle that was cancelled."""
        if self._inbox is None:
            handle.withdraw()
            return
        try:
            self._inbox.put(handle)
        except TimerClosedError:
            return  # the wheel was emptied, or will never turn again

    def loop_is_closed(self) -> bool:
        """Whether nobody will ever turn the wheel again."""
        loop = self.driver.loop
        return loop is not None and loop.is_closed()

    def close(self) -> None:
        """Take nothing more; what has not been armed yet is dropped."""
        if self._inbox is not None:
            for handle in self._inbox.close():
                handle.drop()
