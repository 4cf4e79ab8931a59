"""One call of a handler. Rank 4."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from aiowheel.durable._instants import to_datetime
from aiowheel.durable.operations import Row


class Fire:
    """One attempt to fire a durable timer: the argument of its handler.

    A fire may be repeated after a crash, or if its process stalls for longer than its lease. Every
    repeat and every retry has the same `id`.
    """

    __slots__ = ("_ack", "_epoch", "acknowledged", "due_us", "failure", "following_us", "row")

    def __init__(
        self,
        row: Row,
        due_us: int,
        epoch: int,
        following_us: int | None,
        ack: Callable[[Fire, Any], Awaitable[None]],
    ) -> None:
        #: The timer's row, for the code that ends the fire.
        self.row: Row = row
        #: When the fire was due, in microseconds since 1970.
        self.due_us: int = due_us
        #: When the timer is due after this fire, for the code that ends the fire; None for never.
        self.following_us: int | None = following_us
        self._epoch = epoch
        self._ack = ack
        #: Whether `ack_in` has succeeded.
        self.acknowledged: bool = False
        #: What the handler raised, for the code that ends the fire; None again after the log.
        self.failure: BaseException | None = None

    @property
    def id(self) -> str:
        """The identity of the fire, for example to record that its effect was applied.

        For a recurring timer with `missed="latest"`, the default, use the pair of `id` and `due`
        instead: a repeat after a crash has the same `id`, but may stand for a later occurrence.
        """
        return self.row.identity()

    @property
    def name(self) -> str:
        """The name of the timer."""
        return self.row.name

    @property
    def handler(self) -> str:
        """The name of the handler."""
        return self.row.handler

    @property
    def due(self) -> datetime:
        """When the fire was due, in UTC; the same for each retry.

        A repeat of a recurring timer with `missed="latest"` is due at the latest occurrence.
        """
        return to_datetime(self.due_us)

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1; an attempt that a crash ended is not counted."""
        return self.row.attempt + 1

    @property
    def epoch(self) -> int:
        """The fencing token: a system may refuse it after a larger token of the same partition."""
        return self._epoch

    @property
    def partition(self) -> int:
        """The partition of the timer."""
        return self.row.part

    @property
    def payload(self) -> bytes:
        """The bytes given to `schedule`."""
        return self.row.payload

    async def ack_in(self, connection: Any) -> None:
        """End the fire inside the user's own transaction: its effect then happens exactly once.

        The transaction commits both the effect and the end of the fire, or neither of them.

        Args:
            connection: A connection to the store's database, in a transaction: one of `sqlite3`,
                asyncpg, or psycopg.

        Raises:
            StaleFireError: The fire has ended already, or its timer was replaced; with SQLite also
                if another process owns its partition. Let the exception roll the transaction back.
            TypeError: *connection* is not a connection to the store's database.
            ValueError: *connection* is not in a transaction.
            StoreError: SQLite cannot write, for example because the file is locked.
            asyncpg.PostgresError, asyncpg.InterfaceError, psycopg.Error: Errors of PostgreSQL and
                of the connection, for example a failed serialization.
        """
        await self._ack(self, connection)

    def __repr__(self) -> str:
        return (
            f"<Fire {self.id} of {self.name!r} for {self.handler!r}, due {self.due}, "
            f"attempt {self.attempt}>"
        )
