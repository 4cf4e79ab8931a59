"""A store in an SQLite file: no server, several processes of one machine. Rank 4.

One thread writes and one thread reads, each with a connection of its own. Traps that shaped this
file: a deferred BEGIN that turns into a writer fails at once whatever the timeout, so every writing
transaction is IMMEDIATE; an open cursor keeps the write-ahead log from being reset, so pages are
fetched whole; only the writer's own checkpoints reset the log, so it makes them.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from aiowheel._arguments import checked_int, safe_repr
from aiowheel._sqlite import transaction
from aiowheel.durable import _sqlite_statements as statements
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
    part_of,
)
from aiowheel.durable._store import Store
from aiowheel.errors import BadRowError, StoreError

T = TypeVar("T")

_PARTITIONS = 8
_BUSY_SECONDS = 5.0
_POLL_SECONDS = 0.05
#: Errors of a value, not of the database.
_BAD_ROW = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, OverflowError)


class SQLiteStore(Store):
    """Durable timers in an SQLite file, with `synchronous=FULL`: a commit survives a power loss.

    The tables have names that begin with `aiowheel_`, so that the file may be the application's
    own; `schedule_in` and `ack_in` then take its connections. Several processes of one machine may
    share the file, not several machines.

    Args:
        path: The file; it is created, its folder is not.
        partitions: From 1 to 1024; default: those of the tables, 8 for new ones.

    Raises:
        TypeError, ValueError: An argument is wrong.
    """

    def __init__(self, path: str | os.PathLike[str], *, partitions: int | None = None) -> None:
        super().__init__()
        if not isinstance(path, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"path must be a path, got {safe_repr(path)}")
        self.path: Path = Path(path)
        self._given_partitions = (
            None if partitions is None else checked_int("partitions", partitions, 1, 1024)
        )
        self.partitions: int = self._given_partitions or _PARTITIONS
        self._writer = _Thread(self.path, "writer")
        self._reader = _Thread(self.path, "reader")
        self._polling: asyncio.Task[None] | None = None

    async def open(self, *, create: bool = True) -> None:
        """Connect, and create the tables if there are none."""
        try:
            self._check_exists(create=create)
            self.partitions = await self._writer.run(
                lambda connection: _prepare(connection, self._given_partitions, create=create)
            )
        except StoreError:
            await self.close()
            raise
        self._polling = asyncio.create_task(self._poll(), name="aiowheel durable hints")

    def _check_exists(self, *, create: bool) -> None:
        if not create and not self.path.exists():  # SQLite would create it
            raise StoreError(f"{self.path}: no such file")

    async def close(self) -> None:
        """Close the connections and end the threads."""
        if self._polling is not None:
            self._polling.cancel()
            with suppress(asyncio.CancelledError):
                await self._polling
            self._polling = None
        await self._writer.close()
        await self._reader.close()

    def clock_us(self) -> int:
        """Return the machine's time."""
        return time.time_ns() // 1000

    async def _poll(self) -> None:
        """Look for commits of others: SQLite sends no notifications."""
        last: int | None = None
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                version = await self._writer.run(_data_version)
            except StoreError:
                continue
            if last is not None and version != last:
                self._hint()
            last = version

    # --- writing ------------------------------------------------------------------------------

    async def commit(self, owner: str, operations: Sequence[Operation]) -> list[Result]:
        """Execute the operations in one transaction."""

        def execute(connection: sqlite3.Connection) -> list[Result]:
            statement = statements.Statements(connection, owner, self.partitions, self.clock_us())
            return statement.execute_all(operations)

        return await self._write(execute)

    async def renew(
        self, owner: str, *, lease_us: int, horizon_us: int, give_up: Sequence[int] = ()
    ) -> Leased:
        """Prolong, take and release partitions."""
        return await self._write(
            lambda connection: statements.renew(
                connection, owner, self.clock_us(), lease_us, horizon_us, give_up
            )
        )

    async def release(self, owner: str) -> None:
        """Give up all partitions of *owner*."""
        await self._write(lambda connection: statements.release(connection, owner))

    async def changes(self, owner: str) -> tuple[list[Change], bool]:
        """Take the changes; writes only if there are some."""
        is_any, is_free = await self._reader.run(
            lambda connection: statements.has_changes(connection, owner)
        )
        if not is_any:
            return [], is_free
        return await self._write(lambda connection: statements.changes(connection, owner)), is_free

    async def _write(self, execute: Callable[[sqlite3.Connection], T]) -> T:
        def write(connection: sqlite3.Connection) -> T:
            with transaction(connection):
                return execute(connection)

        return await self._writer.run(write)

    # --- reading ------------------------------------------------------------------------------

    async def page(self, cursors: Sequence[Cursor], until_us: int, limit: int) -> list[list[Row]]:
        """Return rows in order, from one snapshot for each partition."""
        return await self._reader.run(
            lambda connection: [
                statements.page(connection, cursor, until_us, limit) for cursor in cursors
            ]
        )

    async def get(self, name: str) -> Row | None:
        """Return the timer of that name."""
        return await self._reader.run(lambda connection: statements.get(connection, name))

    async def rows(self, *, after: str = "", prefix: str = "", limit: int = 1000) -> list[Row]:
        """Return timers by name."""
        return await self._reader.run(
            lambda connection: statements.rows(connection, after, prefix, limit)
        )

    async def dead_letters(self, *, after: int = 0, limit: int = 1000) -> list[DeadLetter]:
        """Return dead letters by id."""
        return await self._reader.run(
            lambda connection: statements.dead_letters(connection, after, limit)
        )

    async def summary(self) -> Summary:
        """Count."""
        now_us = self.clock_us()
        return await self._reader.run(lambda connection: statements.summary(connection, now_us))

    async def check(self) -> list[str]:
        """Have SQLite check the file, and check partitions."""

        def check(connection: sqlite3.Connection) -> list[str]:
            flaws = [str(line) for (line,) in connection.execute("PRAGMA integrity_check(20)")]
            found = [] if flaws == ["ok"] else flaws
            query = "SELECT name, part FROM aiowheel_timers"
            return found + [
                f"timer {name!r} is in partition {part}, not in {part_of(name, self.partitions)}"
                for name, part in connection.execute(query)
                if part != part_of(name, self.partitions)
            ]

        return await self._reader.run(check)

    # --- the user's transactions ----------------------------------------------------------------

    async def put_in(self, connection: Any, operation: Put) -> Result:
        """Execute a `Put` on the user's `sqlite3.Connection`, on this thread."""
        return self._execute_in(connection, operation)

    async def settle_in(self, connection: Any, operation: Settle) -> Result:
        """Execute a `Settle` on the user's `sqlite3.Connection`, on this thread."""
        return self._execute_in(connection, operation)

    def _execute_in(self, connection: Any, operation: Put | Settle) -> Result:
        if not isinstance(connection, sqlite3.Connection):
            raise TypeError(f"connection must be a sqlite3.Connection, got {safe_repr(connection)}")
        files = [file for _, _, file in statements.plain(connection, "PRAGMA database_list")]
        if not any(file and Path(file).resolve() == self.path.resolve() for file in files):
            raise TypeError(f"connection must be one of {self.path}, got one of {files}")
        if connection.isolation_level is None and not connection.in_transaction:
            raise ValueError("connection must be in a transaction, got one in autocommit mode")
        try:
            # No process is the owner here: the change is left for whichever process it is.
            statement = statements.Statements(connection, "", self.partitions, self.clock_us())
            return statement.execute_all([operation])[0]
        except _BAD_ROW as error:
            raise BadRowError(str(error)) from error
        except sqlite3.Error as error:
            raise StoreError(str(error)) from error


class _Thread:
    """A thread with a connection, which is opened when it is used and again after an error."""

    def __init__(self, path: Path, role: str) -> None:
        self._path = path
        self._role = role
        self._pool: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None

    async def run(self, call: Callable[[sqlite3.Connection], T]) -> T:
        """Run *call* on the thread.

        Raises:
            BadRowError: SQLite refuses a value.
            StoreError: The file cannot be used.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"aiowheel-sqlite-{self._role}")
        loop = asyncio.get_running_loop()
        # Shielded: a cancelled caller must not leave before its transaction has ended.
        return await asyncio.shield(loop.run_in_executor(self._pool, self._run, call))

    def _run(self, call: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._connection is None:
                self._connection = _connect(self._path, is_reader=self._role == "reader")
            return call(self._connection)
        except _BAD_ROW as error:
            raise BadRowError(f"{self._path}: {error}") from error
        except sqlite3.Error as error:
            self._drop()
            raise StoreError(f"{self._path}: {error}") from error

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    async def close(self) -> None:
        """Close the connection and end the thread; idempotent."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.get_running_loop().run_in_executor(pool, self._drop)
            pool.shutdown(wait=False)


def _connect(path: Path, *, is_reader: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        if is_reader:
            connection.execute("PRAGMA query_only = ON")
        else:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA wal_autocheckpoint = 1000")
            connection.execute("PRAGMA journal_size_limit = 67108864")
    except BaseException:
        connection.close()
        raise
    return connection


def _data_version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


def _prepare(connection: sqlite3.Connection, partitions: int | None, *, create: bool) -> int:
    """Create the tables, or check that they fit; return their partitions."""
    with transaction(connection):
        exists = connection.execute(
            "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'aiowheel_meta'"
        ).fetchone()
        if not exists:
            statements.create(connection, partitions or _PARTITIONS, allowed=create)
        return statements.partitions_of_tables(connection, partitions)
