"""Calls from other threads than the loop's: the inbox, and `call_later_threadsafe`. Rank 1.

Sources: Netty's multi-producer queue in front of its wheel; `loop.call_soon_threadsafe`, which
wakes the loop for every call, whereas an inbox wakes it once for a burst.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from threading import Lock, RLock
from typing import Any, Final, cast

from mypy_extensions import i64

from aiowheel._arguments import safe_repr
from aiowheel._callbacks import START_A_TASK, plain_callback
from aiowheel._units import FOREVER, delay_to_ns, ns_to_seconds
from aiowheel.errors import AiowheelError, TimerClosedError
from aiowheel.timer._driver import BUDGET_NS, Driver, TimerTask
from aiowheel.timer._handle import check_context

_BUDGET: Final = BUDGET_NS / 1e9  # seconds of one turn of the loop that receiving may take
_PENDING: Final = 0
_FIRED: Final = 1
_CANCELLED: Final = 2
_NAMES: Final = ("pending", "fired", "cancelled")


class Inbox:
    """A queue from any thread to a loop: it calls *receive* with each item on the loop's thread.

    Items keep their order. A burst of puts shares one `call_soon_threadsafe`. Receiving pauses
    after the budget of a slice, so that the loop runs its other callbacks. Once `put` has returned,
    the item is either received or returned by `close`, unless the loop itself is closed first.

    Args:
        loop: The loop on which *receive* runs.
        receive: Called with each item; the loop's exception handler gets its exceptions.
        closed_error: The type of the error that `put` raises after `close`.
        owner: The name of what is closed, for the text of that error.
        describe: Returns the name of an item, for the same text.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        receive: Callable[[Any], object],
        closed_error: type[AiowheelError],
        owner: str,
        describe: Callable[[Any], str] = safe_repr,
    ) -> None:
        self._loop = loop
        self._receive = receive
        self._closed_error = closed_error
        self._owner = owner
        self._describe = describe
        self._items: deque[object] = deque()
        self._scheduled = False  # a call of `_drain` is scheduled and has not begun
        self._closed = False
        # Reentrant, because a finalizer or a signal handler may call `put` during a `put`.
        self._lock = RLock()
        self._context = Context()  # an empty one instead of that of the first caller

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: object) -> None:
        """Add *item* to the queue; from any thread.

        Raises:
            AiowheelError: The inbox or its loop is closed; the type is *closed_error*.

        Cost: O(1); the first put of a burst wakes the loop.
        """
        with self._lock:
            if self._closed:
                text = f"{self._owner} is closed: {self._describe(item)} was refused"
                raise self._closed_error(text)
            if not self._scheduled:
                try:
                    self._loop.call_soon_threadsafe(self._drain, context=self._context)
                except RuntimeError:  # the loop is closed
                    text = f"the event loop is closed: {self._describe(item)} was refused"
                    raise self._closed_error(text)  # noqa: B904 - mypyc drops the second half
                self._scheduled = True
            self._items.append(item)

    def close(self) -> list[Any]:
        """Refuse new items and return those not received yet. Idempotent, from any thread."""
        with self._lock:
            self._closed = True
            left = list(self._items)
            self._items.clear()
        return left

    def _drain(self) -> None:
        # With the lock, because a put that has woken the loop may not have appended its item yet.
        with self._lock:
            self._scheduled = False
        # The loop's clock, so that a run on a virtual clock is repeatable.
        limit = self._loop.time() + _BUDGET
        try:
            while self._items and self._loop.time() < limit:
                self._hand_over()
        finally:
            with self._lock:
                if self._items and not self._scheduled:
                    self._loop.call_soon(self._drain, context=self._context)
                    self._scheduled = True

    def _hand_over(self) -> None:
        try:
            item = self._items.popleft()
        except IndexError:  # another thread has closed the inbox meanwhile
            return
        try:
            self._receive(item)
        except Exception as error:  # one failing item must not block the others
            text = f"Exception while receiving {safe_repr(item)} from a thread"
            self._loop.call_exception_handler({"message": text, "exception": error})


# Not acyclic: a handle in the inbox is in no wheel, and no wheel reports its references to the
# collector (see `Node`).
class ThreadsafeHandle(TimerTask):
    """The handle of `call_later_threadsafe`; every method may be called from any thread.

    Exactly one of firing, cancelling and closing the timer takes effect.
    """

    __slots__ = ("_args", "_armed", "_claim", "_context", "_state", "_threads")

    def __init__(
        self,
        threads: Threads,
        deadline: i64,
        callback: object,
        args: tuple[object, ...],
        context: Context | None,
    ) -> None:
        super().__init__(deadline, callback)
        self._threads = threads
        self._args = args
        self._context: Context | None = copy_context() if context is None else context
        self._claim = Lock()  # acquired once, by the thread that decides the final state
        self._state: i64 = _PENDING  # written once, by that thread
        self._armed = False  # only the loop's thread uses it

    def when(self) -> float:
        """Return the deadline in seconds on the scale of `timer.time()`; `inf` for never."""
        return ns_to_seconds(self._deadline)

    def cancel(self) -> bool:
        """Cancel the callback; return True exactly once, and only if it will never run.

        The timer counts the handle as pending until the loop's next turn, in the loop's own thread
        as well, because signal handlers and finalizers may call this in the middle of other calls.
        """
        if not self._decide(_CANCELLED):
            return False
        self._release()
        self._threads.withdraw(self)
        return True

    def cancelled(self) -> bool:
        """Return whether the callback will never run, by `cancel` or a closed timer or loop."""
        if self._threads.loop_is_closed():
            self.cancel()
        return self._state == _CANCELLED

    def fired(self) -> bool:
        """Return whether the callback has run or is running."""
        return self._state == _FIRED

    def get_context(self) -> Context | None:
        """Return the context of the callback; None if it was dropped."""
        return self._context

    def arrive(self) -> None:
        """Arm a new handle, or withdraw a cancelled one that is armed; on the loop's thread."""
        if self._armed:
            self.withdraw()
        elif self._state == _PENDING:
            self._armed = True
            driver = self._threads.driver
            driver.arm(self, driver.now_ns())

    def withdraw(self) -> None:
        """Remove the handle from the wheel; on the loop's thread."""
        super().cancel()

    def fire(self) -> None:
        if not self._decide(_FIRED):
            return  # cancelled in another thread in this very moment
        callback, args, context = self._payload, self._args, cast(Context, self._context)
        self._release()
        try:
            context.run(cast(Callable[..., object], callback), *args)
        except BaseException:
            self._context = context  # as in `TimerHandle.fire`
            raise

    def forget(self) -> None:
        self._context = None

    def drop(self) -> None:
        if self._decide(_CANCELLED):
            self._release()

    def _decide(self, state: i64) -> bool:
        if not self._claim.acquire(blocking=False):
            return False
        self._state = state
        return True

    def _release(self) -> None:
        self._payload = None
        self._args = ()
        self._context = None

    def __repr__(self) -> str:
        return f"<ThreadsafeHandle when={self.when()} {_NAMES[self._state]}>"


def _call_of(handle: ThreadsafeHandle) -> str:
    return f"the call of {safe_repr(handle.payload)}"


class Threads:
    """The calls of `call_later_threadsafe` of one timer, executed on the loop's thread.

    A `ManualTimer` has no loop, so its calls are executed at once.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._inbox: Inbox | None = None
        if driver.loop is not None:
            self._inbox = Inbox(
                driver.loop, ThreadsafeHandle.arrive, TimerClosedError, "the timer", _call_of
            )

    def call_later(
        self,
        delay: object,
        callback: object,
        args: tuple[object, ...],
        context: Context | None,
    ) -> ThreadsafeHandle:
        """Arm a new handle *delay* from now, as `Timer.call_later_threadsafe` does."""
        plain_callback("callback", callback, START_A_TASK)
        if context is not None:
            check_context(context)
        delay_ns = max(delay_to_ns("delay", delay), 0)
        deadline = min(self.driver.now_ns() + delay_ns, FOREVER)
        handle = ThreadsafeHandle(self, deadline, callback, args, context)
        if self._inbox is not None:
            self._inbox.put(handle)
        else:
            self.driver.check()
            handle.arrive()
        return handle

    def withdraw(self, handle: ThreadsafeHandle) -> None:
        """Make the loop's thread remove a cancelled handle from the wheel."""
        if self._inbox is None:
            handle.withdraw()
            return
        try:
            self._inbox.put(handle)
        except TimerClosedError:
            return  # the timer or its loop is closed: nothing fires any more

    def loop_is_closed(self) -> bool:
        """Return whether the loop is closed."""
        loop = self.driver.loop
        return loop is not None and loop.is_closed()

    def close(self) -> None:
        """Refuse new calls, and drop those that have not been armed yet."""
        if self._inbox is not None:
            for handle in self._inbox.close():
                handle.drop()
