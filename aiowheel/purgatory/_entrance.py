"""The ways into a purgatory. Rank 2."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import TypeVar, cast

from aiowheel.errors import PurgatoryClosedError
from aiowheel.purgatory._arguments import checked_keys, checked_number
from aiowheel.purgatory._operation import Operation
from aiowheel.purgatory._predicate import PredicateOperation
from aiowheel.purgatory._room import Room
from aiowheel.purgatory._thresholds import ThresholdOperation
from aiowheel.purgatory.operation import DelayedOperation

# Mapping is invariant in its keys: Mapping[Hashable, ...] would take no dict[str, int].
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Entrance:
    """What `Purgatory` offers to those who want to wait."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._closed = False

    def watch(self, operation: DelayedOperation[T], keys: Iterable[Hashable]) -> Awaitable[T]:
        """Wait for *operation*: try; if not met, watch its keys and arm its timeout; try again.

        All of that happens in this call. The result may be awaited at once, later, in a task
        group, or never; it costs no task. Awaiting returns what `on_complete` returned; cancelling
        the awaiting task cancels the operation.

        Args:
            operation: New; an operation can be watched once.
            keys: At least one hashable; given twice counts once.

        Raises:
            TypeError: A key is not hashable, or *keys* is a string.
            ValueError: *keys* is empty, or *operation* was watched before.
            PurgatoryFullError: `max_pending` are waiting; nothing was registered.
            PurgatoryClosedError: The purgatory is closed.
            RuntimeError: No loop is running; `try_complete_else_watch` needs none.

        Cost: O(keys), two calls of `try_complete`.
        """
        return cast("Awaitable[T]", self._watch(operation, checked_keys(keys)))

    def _watch(
        self,
        operation: Operation,
        keys: tuple[object, ...],
        thresholds: list[tuple[object, int | float]] | None = None,
    ) -> Future[object]:
        waiter = self._waiter_for(operation)
        try:
            room = self._open_room()
            if thresholds is None:
                over = room.admit(operation, keys)
            else:
                over = room.admit_until(cast(ThresholdOperation, operation), thresholds)
        except BaseException:
            operation._waiter = None
            raise
        if not over:
            waiter.add_done_callback(operation._abandoned)
        return waiter

    def try_complete_else_watch(
        self, operation: DelayedOperation[T], keys: Iterable[Hashable]
    ) -> bool:
        """`watch` without an awaitable: whether the operation was over at once.

        Needs no running loop when the timer is a `ManualTimer`. An exception of the operation goes
        to the loop's exception handler, or out of the next `ManualTimer.advance`.
        """
        checked = checked_keys(keys)
        return self._open_room().admit(operation, checked)

    def wait_for(
        self, predicate: Callable[[], object], keys: Iterable[Hashable], timeout: object
    ) -> Awaitable[bool]:
        """Wait until *predicate* is true at a check of one of the keys; False on timeout."""
        operation = PredicateOperation(predicate, timeout)
        return cast("Awaitable[bool]", self._watch(operation, checked_keys(keys)))

    def wait_until(
        self,
        thresholds: Mapping[K, int | float],
        timeout: object,
        mode: str = "all",
    ) -> Awaitable[bool]:
        """Wait until counters, raised by `advance`, have reached thresholds; False on timeout.

        Args:
            thresholds: For each key the least value, int or float, that will do.
            timeout: Seconds or timedelta; `inf` for none.
            mode: "all" keys, or "any" one of them.

        Raises:
            ValueError: No threshold, one is NaN, or *mode* is unknown.
            PurgatoryFullError: `max_pending` are waiting; nothing was registered.
            PurgatoryClosedError: The purgatory is closed.

        Cost: O(keys x log waiters of the key).
        """
        if mode not in {"all", "any"}:
            raise ValueError(f'mode must be "all" or "any", got {mode!r}')
        if not thresholds:
            raise ValueError("thresholds must name at least one key")
        # As objects: compiled code would refuse a bad threshold before it could be named.
        items = cast("Mapping[object, object]", thresholds).items()
        wanted = [(key, checked_number("threshold", least)) for key, least in items]
        operation = ThresholdOperation(timeout, len(wanted) if mode == "all" else 1)
        operation.keys = tuple(thresholds)
        return cast("Awaitable[bool]", self._watch(operation, operation.keys, wanted))

    def _open_room(self) -> Room:
        if self._closed:
            raise PurgatoryClosedError(f"{self!r} is closed")
        return self._room

    def _waiter_for(self, operation: Operation) -> Future[object]:
        # Not asked for where it is known: it costs a system call on Python 3.11.
        loop = self._room.driver.loop
        waiter: Future[object] = (get_running_loop() if loop is None else loop).create_future()
        if operation._waiter is not None:
            raise ValueError(f"an operation can be watched once, got {operation!r}")
        operation._waiter = waiter
        return waiter
