"""What waits in a purgatory. Rank 2.

Source: Kafka's DelayedOperation; without its lock, for one event loop runs all of it.
"""

from __future__ import annotations

from asyncio import Future
from typing import Final, cast

from mypy_extensions import i64, mypyc_attr

from aiowheel._units import FOREVER, delay_to_ns, ns_to_seconds
from aiowheel.errors import TimerClosedError
from aiowheel.purgatory._outcome import Outcome
from aiowheel.timer._driver import TimerTask
from aiowheel.wheel._bucket import Node

_PENDING: Final = Outcome.PENDING
_COMPLETED: Final = Outcome.COMPLETED
_EXPIRED: Final = Outcome.EXPIRED
_CANCELLED: Final = Outcome.CANCELLED


@mypyc_attr(allow_interpreted_subclasses=True)
class Operation:
    """What every delayed operation is made of; users derive from `DelayedOperation`."""

    def __init__(self, timeout: object) -> None:
        self._timeout_ns: i64 = delay_to_ns("timeout", timeout)
        self._outcome: Outcome = _PENDING
        #: The key whose check ended it; None for anything else.
        self.completed_by: object = None
        #: The keys it was given to watch.
        self.keys: tuple[object, ...] = ()
        self._checks: i64 = 0
        self._created_ns: i64 = 0
        self._deadline_ns: i64 = FOREVER
        self._finished_ns: i64 = FOREVER
        self._place: Place | None = None  # the purgatory it was given to
        self._alarm: OperationAlarm | None = None
        self._links: Link | None = None  # one for each key, chained
        self._waiter: Future[object] | None = None

    # --- for subclasses ---------------------------------------------------------------------

    def try_complete(self) -> object:
        """Say whether the condition is met; anything true completes the operation.

        Called when it is watched, and at every check of one of its keys while it is pending. May
        call `force_complete` itself, as Kafka's do. What it raises fails this operation alone.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement try_complete")

    def on_complete(self) -> object:
        """Do what had to wait; the result of awaiting. Exactly once, expiration included.

        What it raises fails this operation alone.
        """
        return None

    def on_expiration(self) -> None:
        """Called after `on_complete`, only when the timeout did it."""

    # --- for everybody ----------------------------------------------------------------------

    def force_complete(self) -> bool:
        """Complete it whatever its condition; True for exactly one caller, whoever comes first."""
        return self._finish(_COMPLETED)

    def cancel(self) -> bool:
        """Give it up: no `on_complete`, an awaiting task gets CancelledError; True only once."""
        return self._finish(_CANCELLED)

    def is_completed(self) -> bool:
        """Whether it is over, one way or another."""
        return self._outcome is not _PENDING

    @property
    def outcome(self) -> Outcome:
        """How it ended, or PENDING."""
        return self._outcome

    @property
    def checks(self) -> int:
        """How often `try_complete` was asked."""
        return self._checks

    @property
    def created(self) -> float:
        """When it was watched, in seconds on the scale of `timer.time()`."""
        return ns_to_seconds(self._created_ns)

    @property
    def deadline(self) -> float:
        """When it expires, in seconds on the scale of `timer.time()`; `inf` for never."""
        return ns_to_seconds(self._deadline_ns)

    @property
    def finished(self) -> float:
        """When it ended, in seconds on the scale of `timer.time()`; `inf` before."""
        return ns_to_seconds(self._finished_ns)

    def _finish(self, outcome: Outcome) -> bool:
        if self._outcome is not _PENDING:
            return False
        place = self._place
        if place is None:  # not watched yet: nobody to tell
            self._outcome = outcome
            if outcome is _COMPLETED:
                self.on_complete()
            return True
        lost = outcome is not _CANCELLED and abandoned(self)
        place.finish(self, outcome, None)
        return not lost

    def _abandoned(self, waiter: Future[object]) -> None:
        """Called when the future that `watch` returned is done before the operation is."""
        if waiter.cancelled():
            self._waiter = None
            self._finish(_CANCELLED)

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled: it is watched once")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._outcome.value} keys={self.keys!r}>"


def abandoned(operation: Operation) -> bool:
    """Whether its awaiting task was cancelled, in this turn of the loop: a result would be lost."""
    waiter = operation._waiter
    return waiter is not None and waiter.cancelled()


class Place:
    """What an operation needs of the purgatory it waits in."""

    def finish(self, operation: Operation, outcome: Outcome, error: Exception | None) -> None:
        """End a pending operation; the caller has made sure that it is pending.

        Args:
            operation: What ends.
            outcome: How.
            error: What failed it, or why it was cancelled, for whoever awaits it.
        """
        raise NotImplementedError


# Both reach the operation and are reached from it: whatever ends the operation cuts them off, for
# the cyclic collector does not see them.
@mypyc_attr(acyclic=True, free_list_len=1)
class OperationAlarm(TimerTask):
    """The timeout of an operation, its payload."""

    __slots__ = ()

    def fire(self) -> None:
        operation = cast(Operation, self._payload)
        self._payload = None
        operation._finish(_EXPIRED)

    def drop(self) -> None:
        operation = cast(Operation, self._payload)
        self._payload = None
        place = operation._place
        if place is not None and operation._outcome is _PENDING:
            place.finish(operation, _CANCELLED, TimerClosedError("the timer was closed"))


@mypyc_attr(acyclic=True, free_list_len=1)
class Link(Node):
    """One operation in the watch list of one key."""

    __slots__ = ("operation", "sibling", "watchers")

    def __init__(self, operation: Operation, watchers: Node, sibling: Link | None) -> None:
        self.prev = None
        self.next = None
        self.operation: Operation | None = operation
        self.watchers = watchers
        self.sibling = sibling  # the same operation's link to its previous key
