"""The user's own transaction in PostgreSQL, on a connection of asyncpg or psycopg. Rank 4.

Statements use the placeholders `$1`, `$2`, ... of both PostgreSQL and asyncpg.
"""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from typing import Any, Protocol

from aiowheel._arguments import safe_repr


class Transaction(Protocol):
    """The methods of `asyncpg.Connection` that a transaction needs."""

    async def execute(self, query: str, *arguments: object) -> object:
        """Execute a statement."""
        ...

    async def fetch(self, query: str, *arguments: object) -> list[Any]:
        """Execute a statement, and return its rows."""
        ...

    async def fetchrow(self, query: str, *arguments: object) -> Any:
        """Execute a statement, and return its first row, or None."""
        ...

    async def fetchval(self, query: str, *arguments: object) -> Any:
        """Execute a statement, and return the first value of its first row, or None."""
        ...


def transaction_of(connection: Any) -> Transaction:
    """Return the transaction of *connection*, which the caller commits or rolls back.

    Raises:
        TypeError: It is no connection of asyncpg or psycopg.
        ValueError: Each statement would be a transaction of its own.
    """
    # The program has imported it, if it has such a connection.
    psycopg: Any = sys.modules.get("psycopg")
    if psycopg and isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
        if not hasattr(psycopg, "RawCursor"):
            raise TypeError(f"connection needs psycopg 3.2 or later, got {psycopg.__version__}")
        is_idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        is_inside = not (connection.autocommit and is_idle)  # else a statement begins one
        transaction: Transaction = _Psycopg(connection)
    else:
        # Here, because the store raises first if it is missing; Any, because it has no types.
        asyncpg: Any = import_module("asyncpg")
        if not isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
            raise TypeError(
                f"connection must be one of asyncpg or psycopg, got {safe_repr(connection)}"
            )
        is_inside = connection.is_in_transaction()
        transaction = connection
    if not is_inside:
        raise ValueError(
            "connection must be in a transaction, got one outside of any "
            "(SQLAlchemy begins one with its first statement)"
        )
    return transaction


def errors_of_psycopg(*names: str) -> tuple[type[Exception], ...]:
    """Return classes of `psycopg.errors` for an `except` clause; none if nothing imported them."""
    errors = sys.modules.get("psycopg.errors")
    return () if errors is None else tuple(getattr(errors, name) for name in names)


class _Psycopg:
    """A transaction of psycopg; without asyncio, its statements are executed in threads."""

    def __init__(self, connection: Any) -> None:
        psycopg: Any = import_module("psycopg")
        self._is_async = isinstance(connection, psycopg.AsyncConnection)
        kind = psycopg.AsyncRawCursor if self._is_async else psycopg.RawCursor
        self._cursor = kind(connection, row_factory=psycopg.rows.tuple_row)

    async def fetch(self, query: str, *arguments: object) -> list[Any]:
        # psycopg takes a tuple for a row instead of an array.
        values: list[Any] = [[*each] if isinstance(each, tuple) else each for each in arguments]
        cursor = self._cursor
        if not self._is_async:
            return await self._fetch_in_thread(query, values)
        await cursor.execute(query, values)
        return await cursor.fetchall() if cursor.description else []

    async def _fetch_in_thread(self, query: str, values: list[Any]) -> list[Any]:
        call = asyncio.ensure_future(asyncio.to_thread(self._fetch, query, values))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            # Until the statement has ended, the caller's rollback would block the loop.
            await asyncio.wait({call})
            if not call.cancelled():
                call.exception()  # marks it as retrieved
            raise

    def _fetch(self, query: str, values: list[object]) -> list[Any]:
        cursor = self._cursor.execute(query, values)
        return cursor.fetchall() if cursor.description else []

    async def execute(self, query: str, *arguments: object) -> None:
        await self.fetch(query, *arguments)

    async def fetchrow(self, query: str, *arguments: object) -> Any:
        rows = await self.fetch(query, *arguments)
        return rows[0] if rows else None

    async def fetchval(self, query: str, *arguments: object) -> Any:
        row = await self.fetchrow(query, *arguments)
        return None if row is None else row[0]
