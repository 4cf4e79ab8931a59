"""How other threads hand things to a loop: many puts, one wake-up. Rank 1.

Sources: Netty's multi-producer queue in front of its wheel; `loop.call_soon_threadsafe`, which
wakes the loop for every call.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from contextvars import Context
from threading import RLock
from time import monotonic_ns
from typing import Final, Generic, TypeVar

from aiowheel.errors import AiowheelError

T = TypeVar("T")

_BUDGET_NS: Final = 5_000_000  # how long one drain may keep the loop, as a slice of the driver


class Inbox(Generic[T]):
    """Takes items from any thread and calls *receive* with each on the loop's thread, in order.

    A burst of puts shares one `call_soon_threadsafe`. A drain that takes long lets the loop turn
    and goes on. An item whose `put` returned is received, or returned by `close`: exactly one of
    the two, unless the loop itself is closed first.

    Args:
        loop: Where *receive* runs.
        receive: What it raises goes to the loop's exception handler; the next item follows.
        closed_error: Raised, with a text, by a put that comes too late.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        receive: Callable[[T], object],
        closed_error: type[AiowheelError],
    ) -> None:
        self._loop = loop
        self._receive = receive
        self._closed_error = closed_error
        self._items: deque[T] = deque()
        self._rung = False  # a drain is on its way and has not begun
        self._closed = False
        # Reentrant: a finalizer or a signal handler may put in the middle of a put.
        self._lock = RLock()
        self._context = Context()  # not that of whoever happened to put first

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Hand *item* over; from any thread.

        Raises:
            AiowheelError: The inbox, or its loop, is closed; of the type given to the constructor.

        Cost: O(1); the first put of a burst wakes the loop.
        """
        with self._lock:
            if self._closed:
                raise self._closed_error(f"closed: {item!r} was not taken")
            if not self._rung:
                try:
                    self._loop.call_soon_threadsafe(self._drain, context=self._context)
                except RuntimeError:  # the loop is closed
                    text = f"the event loop is closed: {item!r} was not taken"
                    raise self._closed_error(text) from None
                self._rung = True
            self._items.append(item)

    def close(self) -> list[T]:
        """Take no more; returns what was put and not received yet. Idempotent, from any thread."""
        with self._lock:
            self._closed = True
            left = list(self._items)
            self._items.clear()
        return left

    def _drain(self) -> None:
        # Under the lock: between a put's wake-up call and its append there is nothing to see yet.
        with self._lock:
            self._rung = False
        limit = monotonic_ns() + _BUDGET_NS
        try:
            while self._items and monotonic_ns() < limit:
                self._hand_over()
        finally:
            with self._lock:
                if self._items and not self._rung:
                    self._loop.call_soon(self._drain, context=self._context)
                    self._rung = True

    def _hand_over(self) -> None:
        try:
            item = self._items.popleft()
        except IndexError:  # closed meanwhile, from another thread
            return
        try:
            self._receive(item)
        except Exception as error:  # one bad item must not hold up the others
            self._loop.call_exception_handler(
                {"message": f"Exception while receiving {item!r} from a thread", "exception": error}
            )
