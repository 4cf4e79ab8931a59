"""The waiting room of delayed operations. Rank 2.

Sources: Kafka's DelayedOperationPurgatory and, for the counters, the threshold purgatory of its
raft client.
"""

from __future__ import annotations

import heapq
from asyncio import AbstractEventLoop, Event
from collections.abc import Coroutine, Hashable, Iterator, Sequence

from aiowheel._events import emit
from aiowheel._units import FOREVER, delay_to_ns
from aiowheel.abc import Instrument
from aiowheel.errors import PurgatoryClosedError
from aiowheel.purgatory._arguments import checked_count, checked_limit, checked_number
from aiowheel.purgatory._closing import close
from aiowheel.purgatory._entrance import Entrance
from aiowheel.purgatory._operation import Operation
from aiowheel.purgatory._outcome import Outcome
from aiowheel.purgatory._room import Room
from aiowheel.purgatory._statistics import PurgatoryStatistics
from aiowheel.purgatory._walk import Walk
from aiowheel.timer._threads import Inbox
from aiowheel.timer._shared import current_timer
from aiowheel.timer._timer import Timer


class Purgatory(Entrance):
    """Holds operations until a check of a watched key completes them, or their timeout does.

    An operation ends exactly once, whoever comes first: its condition, force, its timeout, a
    cancellation, the closing, or an exception. It then leaves the wheel and all its watch lists at
    once, and a key that nobody watches any more is forgotten.

    All calls but the `*_threadsafe` ones belong to the timer's loop and thread.

    Args:
        name: For statistics, events and traces.
        timer: An open `Timer` or a `ManualTimer`; default: the running loop's shared timer.
        max_pending: Most operations that may wait at once; default: no limit.
        purge_interval: Default: watch lists are kept exact. A *count* of operations, at least 0:
            lists are purged lazily, as in Kafka, when the estimated total of operations in them
            exceeds the pending ones by more than this.
        instruments: Told of every finished operation.

    Raises:
        ValueError: A count is out of range.
        RuntimeError: No *timer*, and no loop is running.
    """

    def __init__(
        self,
        name: str = "purgatory",
        *,
        timer: Timer | None = None,
        max_pending: int | None = None,
        purge_interval: int | None = None,
        instruments: Sequence[Instrument] = (),
    ) -> None:
        checked_count("max_pending", max_pending, 1)
        checked_count("purge_interval", purge_interval, 0)
        # Kept, for a timer that is dropped closes, and nobody else may hold a ManualTimer.
        self._timer = current_timer() if timer is None else timer
        driver = self._timer.open_driver()
        super().__init__(Room(name, driver, max_pending, purge_interval, tuple(instruments)))
        self.name = name
        self._loop: AbstractEventLoop | None = driver.loop
        self._emptied = Event()  # set when the last one leaves a purgatory that is closing
        self._inbox: Inbox | None = None
        if self._loop is not None:
            self._inbox = Inbox(self._loop, self._receive, PurgatoryClosedError)

    # --- life -------------------------------------------------------------------------------

    async def __aenter__(self) -> Purgatory:
        return self

    def __aexit__(self, *exc_info: object) -> Coroutine[object, object, None]:
        return self.aclose()

    def aclose(self, drain: str = "expire") -> Coroutine[object, object, None]:
        """Take nothing more in and see off who waits; idempotent.

        Args:
            drain: "expire": every pending operation expires now. "cancel": it is cancelled, and
                who awaits it gets `PurgatoryClosedError`. "wait": wait until all are over.

        Raises:
            ValueError: *drain* is none of these.
        """
        return close(self._begin_closing, self._finish_closing, drain)

    def _begin_closing(self, drain: str) -> Event | None:
        """Take nothing more in; the event to wait for, if any."""
        if drain not in {"expire", "cancel", "wait"}:
            raise ValueError(f'drain must be "expire", "cancel" or "wait", got {drain!r}')
        room = self._room
        if not room.driver.closed:
            room.driver.check()
        if drain != "wait":
            self._close_inbox()
        if not self._closed and room.pending:
            emit(
                "aiowheel.purgatory_closed_with_pending",
                purgatory=self.name,
                pending=int(room.pending),
                drain=drain,
            )
        self._closed = True
        if drain != "wait" or not room.pending:
            return None
        room.on_empty = self._emptied.set
        return self._emptied

    def _finish_closing(self, drain: str) -> None:
        """See off who is still there."""
        room = self._room
        self._close_inbox()  # when waiting not before: threads may bring what was waited for
        text = f"{self!r} was closed"
        for operation in room.operations():
            if operation.is_completed():  # an earlier one's on_complete may have ended it
                continue
            if drain == "expire":
                room.finish(operation, Outcome.EXPIRED, None)
            else:  # each its own error, for whoever raises it writes its context into it
                room.finish(operation, Outcome.CANCELLED, PurgatoryClosedError(text))
        room.sweep()

    def _close_inbox(self) -> None:
        if self._inbox is not None:
            for item in self._inbox.close():
                self._receive(item)

    # --- completing -------------------------------------------------------------------------

    def check_and_complete(
        self, key: Hashable, *, limit: int | None = None, budget: object = None
    ) -> int:
        """Ask every operation that watches *key* now whether it can complete, oldest first.

        Called from within an `on_complete` or a condition it is queued, returns 0, and is done
        when the check under way is over: no recursion, however deep.

        Args:
            key: One nobody watches is no error: 0.
            limit: Stop after this many have completed, at least 1.
            budget: Seconds to keep the loop for; the rest is asked on later turns of the loop, and
                the count is that of the first slice.

        Returns:
            How many operations that completed.

        Raises:
            ValueError: *limit* is less than 1, or *budget* is not above 0 or has no loop.

        Cost: O(operations that watch *key*), one call of `try_complete` each.
        """
        room = self._room
        room.driver.checked_now()
        if budget is not None:
            return self._check_in_slices(key, limit, budget)
        return room.check(key, checked_limit(limit))

    def _check_in_slices(self, key: Hashable, limit: int | None, budget: object) -> int:
        slice_ns = delay_to_ns("budget", budget)
        if slice_ns <= 0 or self._loop is None:
            raise ValueError(f"budget must be above 0 and needs a loop, got {budget!r}")
        watchers = self._room.lists.get(key)
        if watchers is None:
            return 0
        return self._room.check_slice(Walk(watchers), key, checked_limit(limit), slice_ns)

    def advance(self, key: Hashable, value: int | float) -> int:
        """Raise the counter *key* to *value*; a smaller value than before is ignored.

        The value is remembered, so that a later `wait_until` completes at once, until `forget`.

        Returns:
            How many operations that completed, lowest thresholds first.

        Cost: O(log waiters) for each threshold reached, whatever else waits.
        """
        checked = checked_number("value", value)
        self._room.driver.checked_now()
        return self._room.advance(key, checked)

    def forget(self, key: Hashable) -> bool:
        """Forget the value of the counter *key*; whether it had one. Who waits goes on waiting."""
        return self._room.counters.forget(key)

    def cancel_for_key(self, key: Hashable) -> list[Operation]:
        """Cancel the operations that watch *key*, everywhere they are watched; returns them."""
        self._room.driver.checked_now()
        return [operation for operation in self._room.operations_of(key) if operation.cancel()]

    def check_and_complete_threadsafe(self, key: Hashable) -> None:
        """`check_and_complete` from any thread, soon; many calls share one wake-up of the loop.

        Raises:
            PurgatoryClosedError: The purgatory or its loop is closed.
            TypeError: *key* is not hashable.
            ValueError: The timer has no loop.
        """
        hash(key)
        self._loops_inbox().put((key, None))

    def advance_threadsafe(self, key: Hashable, value: int | float) -> None:
        """`advance` from any thread, soon; many calls share one wake-up of the loop.

        Raises: as `check_and_complete_threadsafe`, and what `advance` raises for a bad value.
        """
        hash(key)
        self._loops_inbox().put((key, checked_number("value", value)))

    def _loops_inbox(self) -> Inbox:
        if self._inbox is None:
            raise ValueError("a purgatory on a ManualTimer has no loop for threads to wake")
        return self._inbox

    def _receive(self, item: tuple[object, int | float | None]) -> None:
        key, value = item
        if value is None:
            self._room.check(key, FOREVER)
        else:
            self._room.advance(key, value)

    # --- looking in -------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._room.pending

    @property
    def watched(self) -> int:
        """Links between an operation and a key."""
        return self._room.links

    def pending(self, key: Hashable = None) -> Iterator[Operation]:
        """The pending operations, or those that wait for *key*: a snapshot, for debugging."""
        room = self._room
        return iter(room.operations() if key is None else room.operations_of(key))

    def top_keys(self, count: int = 10) -> list[tuple[Hashable, int]]:
        """The keys with most watchers, and how many those are. O(keys)."""
        sizes = self._room.sizes()
        return [(key, size) for size, key in heapq.nlargest(count, sizes, key=lambda item: item[0])]

    def statistics(self) -> PurgatoryStatistics:
        """A snapshot of the counts, from any thread.

        Cost: the size of the histograms; where operations wait for conditions and others for
        counters, O(keys of counters) besides.
        """
        return self._room.statistics()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"pending={len(self)}"
        return f"<Purgatory {self.name!r} {state}>"
