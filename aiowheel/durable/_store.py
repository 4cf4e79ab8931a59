"""The interface of a store, which a database implements for durable timers. Rank 4."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from aiowheel._arguments import safe_repr
from aiowheel.durable.operations import (
    Change,
    Cursor,
    DeadLetter,
    Leased,
    Operation,
    Put,
    Result,
    Row,
    Settle,
    Summary,
)
from aiowheel.errors import StoreError


class Store(ABC):
    """The durable state of timers. `aiowheel.durable.testing.StoreContract` tests a store.

    `aiowheel.durable.operations` has the types of its arguments and results.

    A store object serves one event loop at a time, and one `DurableTimers`; only `MemoryStore` may
    serve several. After `aclose` it may be opened again, also in another loop. Every method may
    raise `StoreError` when the database cannot be used; a `commit` may then have happened or not.

    Attributes:
        version: The version of the tables that this library uses.
        partitions: The number of partitions, fixed when the tables are created.
        most_operations: The most operations of several calls that share a commit.
        default_window: The default of `DurableTimers` for `window`, in seconds.
        default_lease: The default of `DurableTimers` for `lease`, in seconds.
        needs_real_time: Whether the store has a real clock; `DurableTimers` then refuse a loop of
            virtual time, on which no timer would fire in time.
    """

    version: int = 1
    partitions: int
    most_operations: int = 1000
    default_window: float = 60.0
    default_lease: float = 10.0
    needs_real_time: bool = False

    def __init__(self) -> None:
        self._subscribers: list[Callable[[], None]] = []
        self._loss_subscribers: list[Callable[[], None]] = []
        self._is_open = False

    @abstractmethod
    async def open(self, *, create: bool = True) -> None:
        """Connect, and create the tables if there are none.

        A `StoreError` leaves the store as it was before the call.

        Args:
            create: Whether to create missing tables; False raises a `StoreError` instead.

        Raises:
            StoreVersionError: The tables have another version than this library.
            StoreError: The database cannot be used, or this object is open already.
        """

    def _begin_opening(self) -> None:
        """Record that this object is open; raise `StoreError` if it is open already."""
        if self._is_open:
            raise StoreError(
                f"this {type(self).__name__} is open already: each DurableTimers needs a store "
                "object of its own"
            )
        self._is_open = True

    def _end_opening(self) -> None:
        self._is_open = False

    @abstractmethod
    async def aclose(self) -> None:
        """Close connections and threads; idempotent, and never raises `StoreError`."""

    @abstractmethod
    def clock_us(self) -> int | None:
        """Return the store's clock if the process can read it without waiting, else None."""

    async def now_us(self) -> int:
        """Return the store's clock; to be defined if `clock_us` returns None."""
        now_us = self.clock_us()
        if now_us is None:
            raise NotImplementedError(f"{type(self).__name__} must define now_us")
        return now_us

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call *callback*, in the event loop, soon after another process has left changes.

        A lost hint only delays the changes: `renew` returns them later.
        """
        self._subscribers.append(callback)

    def subscribe_to_losses(self, callback: Callable[[], None]) -> None:
        """Call *callback*, in the event loop, if the database may have lost commits.

        That is after a lost connection was opened again, because the database may have crashed or
        failed over although no call has failed, and after another file has taken its place.
        """
        self._loss_subscribers.append(callback)

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        """Stop calling *callback*."""
        for callbacks in (self._subscribers, self._loss_subscribers):
            if callback in callbacks:
                callbacks.remove(callback)

    def _hint(self) -> None:
        for callback in list(self._subscribers):
            callback()

    def _report_loss(self) -> None:
        for callback in list(self._loss_subscribers):
            callback()

    @abstractmethod
    async def commit(self, owner: str, operations: Sequence[Operation]) -> list[Result]:
        """Execute *operations* in order and in one transaction.

        If another process owns the partition of a changed row and may hold the row in memory, the
        change is left for that process; see `changes`.

        Raises:
            BadRowError: The database refuses a value of one of the operations. Nothing was
                executed; the caller finds the operation by executing fewer of them.
        """

    @abstractmethod
    async def renew(
        self, owner: str, *, lease_us: int, horizon_us: int, give_up: Sequence[int] = ()
    ) -> Leased:
        """Renew the owner's leases, take free partitions up to its share, and take changes.

        A partition is free if it has no owner or if its lease has ended; its epoch grows by one
        when it is taken. The share is the number of partitions divided by the number of owners
        whose last `renew` has not expired, rounded up.

        Args:
            owner: The unique name of the caller.
            lease_us: Microseconds from now that the leases last.
            horizon_us: Microseconds from now up to which the caller may read timers into memory.
            give_up: Partitions to release.
        """

    @abstractmethod
    async def release(self, owner: str) -> None:
        """Give up all partitions of *owner*, and stop counting it among the owners."""

    @abstractmethod
    async def changes(self, owner: str) -> tuple[list[Change], bool]:
        """Take the changes that other processes made in the partitions of *owner*.

        Returns:
            The changes, whose large payloads may be `UNREAD` as in `page`, and whether there is a
            partition without an owner.
        """

    @abstractmethod
    async def page(self, cursors: Sequence[Cursor], until_us: int, limit: int) -> list[list[Row]]:
        """Return for each cursor the rows after it that are due by *until_us*.

        Rows are in the order of (due, id), at most *limit* of each partition. A payload with more
        than `LARGE_PAYLOAD` bytes may be `UNREAD`; `get` then reads it when the timer is due.
        """

    @abstractmethod
    async def get(self, name: str) -> Row | None:
        """Return the timer of that name."""

    @abstractmethod
    async def rows(self, *, after: str = "", prefix: str = "", limit: int = 1000) -> list[Row]:
        """Return at most *limit* timers by name: after *after*, and beginning with *prefix*.

        A store may return fewer, but none only if there are none left.
        """

    @abstractmethod
    async def dead_letters(self, *, after: int = 0, limit: int = 1000) -> list[DeadLetter]:
        """Return at most *limit* dead letters by id, after the id *after*.

        A store may return fewer, but none only if there are none left.
        """

    @abstractmethod
    async def summary(self) -> Summary:
        """Return the counts of the store. O(pending)."""

    @abstractmethod
    async def check(self) -> list[str]:
        """Return one line of text for each inconsistency. O(pending)."""

    async def put_in(self, connection: Any, operation: Put) -> Result:  # noqa: ARG002 - for subclasses
        """Execute a `Put` inside the user's own transaction.

        Raises:
            TypeError: *connection* is not a connection to this store's database.
        """
        raise TypeError(self._no_connection(connection))

    async def settle_in(self, connection: Any, operation: Settle) -> Result:  # noqa: ARG002
        """Execute a `Settle` inside the user's own transaction.

        Raises:
            TypeError: *connection* is not a connection to this store's database.
        """
        raise TypeError(self._no_connection(connection))

    def _no_connection(self, connection: object) -> str:
        return (
            f"{type(self).__name__} has no transactions of the user's, got {safe_repr(connection)}"
        )
