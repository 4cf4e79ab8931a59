"""A transaction on a connection to a SQLite file. Rank 4."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Generator[None]:
    """Run the block in a transaction; roll back if it raises, or if the commit does.

    Args:
        connection: In autocommit mode, `isolation_level=None`.
        begin: "BEGIN" for a block that only reads. A writer that begins like that fails at once,
            whatever the timeout, if another one has written since it began.
    """
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
