"""The interface of a store: what a database must do for durable timers. Rank 4."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from aiowheel.durable._operations import (
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


class Store(ABC):
    """The durable truth about timers. `aiowheel.durable.testing.StoreContract` tests one.

    A store object serves one event loop at a time. Every method may raise `StoreError` when the
    database cannot be used; the caller then does not know whether a `commit` happened.

    Attributes:
        partitions: The number of partitions, fixed when the tables are made.
        default_window: Seconds, for `DurableTimers` that are given none.
        default_lease: Seconds, for `DurableTimers` that are given none.
    """

    partitions: int
    default_window: float = 60.0
    default_lease: float = 10.0

    def __init__(self) -> None:
        self._subscribers: list[Callable[[], None]] = []

    @abstractmethod
    async def open(self, *, create: bool = True) -> None:
        """Connect, and create the tables if there are none.

        Args:
            create: False raises a `StoreError` instead.

        Raises:
            StoreVersionError: The tables are of a newer version than this library.
            StoreError: The database cannot be used.
        """

    @abstractmethod
    async def close(self) -> None:
        """Give back connections and threads; idempotent, and never raises `StoreError`."""

    @abstractmethod
    def clock_us(self) -> int | None:
        """Return the store's clock if the process can read it without waiting, else None."""

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call *callback*, on the loop, soon after another process has left changes.

        A lost hint costs time, no correctness: `renew` returns the changes.
        """
        self._subscribers.append(callback)

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        """Stop calling *callback*."""
        if callback in self._subscribers:
            self._subscribers.remove(callback)

    def _hint(self) -> None:
        for callback in list(self._subscribers):
            callback()

    @abstractmethod
    async def commit(self, owner: str, operations: Sequence[Operation]) -> list[Result]:
        """Execute *operations* in order and in one transaction.

        A change of a row that the owner of its partition may hold in memory, and that *owner* does
        not own, is left for that owner, see `changes`.

        Raises:
            BadRowError: The database refuses a value of one of the operations. Nothing was
                executed; the caller finds out which one by executing fewer.
        """

    @abstractmethod
    async def renew(
        self, owner: str, *, lease_us: int, horizon_us: int, give_up: Sequence[int] = ()
    ) -> Leased:
        """Prolong the owner's leases, take free partitions up to its share, collect changes.

        A partition is free if it has no owner or if its lease has ended; its epoch grows by one
        when it is taken. The share is the number of partitions divided by that of owners whose
        last `renew` has not expired, rounded up.

        Args:
            owner: The unique name of the caller.
            lease_us: How long the leases last from now.
            horizon_us: How far ahead of now the caller may read timers into memory.
            give_up: Partitions to release.
        """

    @abstractmethod
    async def release(self, owner: str) -> None:
        """Give up all partitions of *owner* and its place among the owners."""

    @abstractmethod
    async def changes(self, owner: str) -> tuple[list[Change], bool]:
        """Take what other processes changed in the partitions of *owner*.

        Returns:
            The changes, and whether there is a partition without an owner.
        """

    @abstractmethod
    async def page(self, cursors: Sequence[Cursor], until_us: int, limit: int) -> list[list[Row]]:
        """Return for each cursor the rows after it that are due by *until_us*.

        Rows are in the order of (due, id), at most *limit* of each partition.
        """

    @abstractmethod
    async def get(self, name: str) -> Row | None:
        """Return the timer of that name."""

    @abstractmethod
    async def rows(self, *, after: str = "", prefix: str = "", limit: int = 1000) -> list[Row]:
        """Return timers by name, those after *after* whose name begins with *prefix*."""

    @abstractmethod
    async def dead_letters(self, *, after: int = 0, limit: int = 1000) -> list[DeadLetter]:
        """Return dead letters by id, those after *after*."""

    @abstractmethod
    async def summary(self) -> Summary:
        """Count. O(pending)."""

    @abstractmethod
    async def check(self) -> list[str]:
        """Return one line of text for each inconsistency. O(pending)."""

    async def put_in(self, connection: Any, operation: Put) -> Result:  # noqa: ARG002 - for others
        """Execute a `Put` inside the user's own transaction.

        Raises:
            TypeError: *connection* is none of this store's database.
        """
        raise TypeError(self._no_connection(connection))

    async def settle_in(self, connection: Any, operation: Settle) -> Result:  # noqa: ARG002
        """Execute a `Settle` inside the user's own transaction.

        Raises:
            TypeError: *connection* is none of this store's database.
        """
        raise TypeError(self._no_connection(connection))

    def _no_connection(self, connection: object) -> str:
        return f"{type(self).__name__} has no transactions of the user's, got {connection!r}"
