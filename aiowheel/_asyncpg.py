"""The check of a connection of asyncpg on which a user's transaction has begun. Rank 4."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from aiowheel._arguments import safe_repr


def check_in_transaction(connection: Any) -> None:
    """Raise unless each statement on *connection* is part of a transaction of the caller.

    Raises:
        TypeError: It is no connection of asyncpg.
        ValueError: No transaction has begun.
    """
    # Here, because the store raises first if it is missing; Any, because it has no types.
    asyncpg: Any = import_module("asyncpg")
    if not isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
        raise TypeError(f"connection must be one of asyncpg, got {safe_repr(connection)}")
    if not connection.is_in_transaction():
        raise ValueError(
            "connection must be in a transaction, got one outside of any "
            "(SQLAlchemy begins one with its first statement)"
        )
