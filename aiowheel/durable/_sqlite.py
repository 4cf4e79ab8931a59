"""A store in an SQLite file: no server, several processes of one machine. Rank 4.

One thread writes and one thread reads, each with its own connection. Three traps of SQLite:

- A transaction that begins deferred and becomes a writer fails at once, despite the timeout. Every
  writing transaction is therefore IMMEDIATE.
- An open cursor prevents the reset of the write-ahead log. Pages are therefore fetched whole.
- Only checkpoints of the writer reset the log. The writer therefore makes them.

SQLite sends no notifications. A process that has left changes for other processes sends a byte to
the Unix datagram socket of each of them. If no byte arrives, a process finds the change when it
reads the file's `data_version`, every quarter of a second.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

from aiowheel._arguments import safe_repr
from aiowheel._bells import Bells
from aiowheel._sqlite import (
    VALUE_ERRORS,
    ConnectionThread,
    FileLook,
    check_in_transaction,
    checked_file,
    identity_of,
    transaction,
    use_wal,
)
from aiowheel.durable import _sqlite_statements as statements
from aiowheel.durable._databases import checked_partitions, flaws_of, missing_partitions
from aiowheel.durable._store import Store
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
from aiowheel.errors import BadRowError, StoreError

T = TypeVar("T")

_PARTITIONS = 8
_BUSY_SECONDS = 5.0
_POLL = 0.25  # seconds between two looks at the file's version
_FIRST_PAUSE = 0.001  # seconds until the first look at a user's transaction; doubled each time
_BAD_ROW = (*VALUE_ERRORS, OverflowError, UnicodeEncodeError)


class SQLiteStore(Store):
    """Durable timers in an SQLite file, with `synchronous=FULL`: a commit survives a power loss.

    The tables have names that begin with `aiowheel_`, so that the file may be the application's
    own; `schedule_in` and `ack_in` then take its connections. Several processes of one machine may
    share the file, not several machines. A folder beside the file, whose name is that of the file
    and `-timer-hints`, has a socket for each process with open `DurableTimers`.

    Args:
        path: The file; a missing file is created, a missing folder is not.
        partitions: From 1 to 1024; default: the number of the tables, 8 for new tables.

    Raises:
        TypeError, ValueError: An argument is wrong.
    """

    version: int = statements.VERSION
    needs_real_time: bool = True

    def __init__(self, path: str | os.PathLike[str], *, partitions: int | None = None) -> None:
        super().__init__()
        self.path: Path = checked_file(path)
        self._given_partitions = checked_partitions(partitions)
        self.partitions: int = self._given_partitions or _PARTITIONS
        self._file = self.path.absolute()  # the program may change its folder
        self._writer = ConnectionThread("aiowheel-sqlite-writer", self._file, _connect)
        self._reader = ConnectionThread("aiowheel-sqlite-reader", self._file, _connect_reader)
        self._bells = Bells(self._file, "-timer-hints")
        self._look = FileLook(self._file)
        self._identity: tuple[int, int] | None = None
        self._next_poll: asyncio.TimerHandle | None = None
        self._users: dict[int, asyncio.TimerHandle] = {}  # the next look, by connection

    async def open(self, *, create: bool = True) -> None:
        """Connect, and create the tables if there are none."""
        if not create and not self._file.exists():  # SQLite would create it
            raise StoreError(f"{self.path}: no such file")
        self._begin_opening()

        def prepare(connection: sqlite3.Connection) -> int:
            return statements.prepare(
                connection, self._given_partitions, _PARTITIONS, create=create
            )

        try:
            # The writer's connection would change the journal mode of another program's file.
            opening = self._write(prepare) if create else self._run(self._reader, prepare)
            self.partitions = await opening
        except StoreError:
            await self.aclose()
            raise
        self._identity = identity_of(self._file)

    async def aclose(self) -> None:
        """Close the connections and end the threads."""
        next_poll, self._next_poll = self._next_poll, None
        if next_poll is not None:
            next_poll.cancel()
        for handle in self._users.values():
            handle.cancel()
        self._users.clear()
        self._look.close()
        async with AsyncExitStack() as steps:  # each runs even if this call is cancelled
            steps.callback(self._end_opening)
            steps.callback(self._bells.close)
            steps.push_async_callback(self._reader.aclose)
            steps.push_async_callback(self._writer.aclose)

    def clock_us(self) -> int:
        """Return the machine's time."""
        return time.time_ns() // 1000

    async def _run(self, thread: ConnectionThread, call: Callable[[sqlite3.Connection], T]) -> T:
        """Run *call* on a thread.

        Raises:
            BadRowError: SQLite refuses a value.
            StoreError: The file cannot be used.
        """
        try:
            return await thread.run(call)
        except _BAD_ROW as error:
            raise BadRowError(f"{self.path}: {error}") from error
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from error

    # --- hints --------------------------------------------------------------------------------

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call *callback* soon after another process has left changes; see `Store`."""
        super().subscribe(callback)
        if self._next_poll is None:
            loop = asyncio.get_running_loop()
            with suppress(OSError):  # without a socket, `_poll` still finds the changes
                self._bells.listen(loop, lambda _: self._hint())
            self._next_poll = loop.call_later(_POLL, self._poll)

    def _poll(self) -> None:
        """Report a change or a replacement of the file; called every quarter of a second."""
        # A callback of the loop, because a task that wakes up this often costs twice as much.
        self._next_poll = asyncio.get_running_loop().call_later(_POLL, self._poll)
        if self._look.may_have_changed():
            self._hint()
            before, self._identity = self._identity, identity_of(self._file)
            if before != self._identity:
                self._report_loss()

    def _hint_after(self, connection: sqlite3.Connection, pause: float = _FIRST_PAUSE) -> None:
        """Send hints once the user's transaction has ended, which SQLite does not report.

        The pauses double, so that the delay of the hint is at most the length of the transaction.
        After a transaction longer than `_POLL`, the processes find the change by polling.
        """
        if pause < _POLL and _is_in_transaction(connection):
            self._users[id(connection)] = asyncio.get_running_loop().call_later(
                pause, self._hint_after, connection, 2 * pause
            )
        else:
            self._users.pop(id(connection), None)
            self._bells.ring(own=False)
            self._hint()

    # --- writing ------------------------------------------------------------------------------

    async def commit(self, owner: str, operations: Sequence[Operation]) -> list[Result]:
        """Execute the operations in one transaction."""

        def execute(connection: sqlite3.Connection) -> tuple[list[Result], bool]:
            statement = statements.Statements(connection, owner, self.partitions, self.clock_us())
            return statement.execute_all(operations), statement.has_left

        results, has_left = await self._write(execute)
        if has_left:
            self._bells.ring(own=False)
        return results

    async def renew(
        self, owner: str, *, lease_us: int, horizon_us: int, give_up: Sequence[int] = ()
    ) -> Leased:
        """Renew, take and release partitions."""
        leased = await self._write(
            lambda connection: statements.renew(
                connection, owner, self.clock_us(), lease_us, horizon_us, give_up
            )
        )
        if give_up:
            self._bells.ring(own=False)
        return leased

    async def release(self, owner: str) -> None:
        """Give up all partitions of *owner*."""
        await self._write(lambda connection: statements.release(connection, owner))
        self._bells.ring(own=False)

    async def changes(self, owner: str) -> tuple[list[Change], bool]:
        """Take the changes; write only if there are changes."""
        # Not on the reader's thread, where a page may be read for long.
        is_any, is_free = await self._run(
            self._writer, lambda connection: statements.has_changes(connection, owner)
        )
        if not is_any:
            return [], is_free
        return await self._write(lambda connection: statements.changes(connection, owner)), is_free

    async def _write(self, execute: Callable[[sqlite3.Connection], T]) -> T:
        def write(connection: sqlite3.Connection) -> T:
            with transaction(connection):
                return execute(connection)

        return await self._run(self._writer, write)

    # --- reading ------------------------------------------------------------------------------

    async def page(self, cursors: Sequence[Cursor], until_us: int, limit: int) -> list[list[Row]]:
        """Return rows in order, from one snapshot for each partition."""
        return await self._run(
            self._reader,
            lambda connection: [
                statements.page(connection, cursor, until_us, limit) for cursor in cursors
            ],
        )

    async def get(self, name: str) -> Row | None:
        """Return the timer of that name."""
        return await self._run(self._reader, lambda connection: statements.get(connection, name))

    async def rows(self, *, after: str = "", prefix: str = "", limit: int = 1000) -> list[Row]:
        """Return timers by name."""
        return await self._run(
            self._reader, lambda connection: statements.rows(connection, after, prefix, limit)
        )

    async def dead_letters(self, *, after: int = 0, limit: int = 1000) -> list[DeadLetter]:
        """Return dead letters by id."""
        return await self._run(
            self._reader, lambda connection: statements.dead_letters(connection, after, limit)
        )

    async def summary(self) -> Summary:
        """Return the counts of the tables."""
        now_us = self.clock_us()
        return await self._run(
            self._reader, lambda connection: statements.summary(connection, now_us)
        )

    async def check(self) -> list[str]:
        """Run SQLite's integrity check, and check the tables, the partitions and the timers.

        If a column or an index is missing, the partitions and the timers are not checked.
        """

        def check(connection: sqlite3.Connection) -> list[str]:
            flaws = [str(line) for (line,) in connection.execute("PRAGMA integrity_check(20)")]
            found = [] if flaws == ["ok"] else flaws
            if missing := statements.missing(connection):
                return found + missing
            parts = [part for (part,) in connection.execute("SELECT part FROM aiowheel_parts")]
            found += missing_partitions(parts, self.partitions)
            for row in connection.execute(statements.CHECKED):
                found += flaws_of(row, self.partitions)
            return found

        return await self._run(self._reader, check)

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
        own_file = self._file.resolve()
        try:
            if connection.in_transaction:
                statements.lock_in(connection, own_file)
            file = statements.file_of_timers(connection)
        except sqlite3.Error as error:
            raise StoreError(str(error)) from error
        if not file or Path(file).resolve() != own_file:
            found = "without timers" if file is None else f"with the timers of {file!r}"
            raise TypeError(f"connection must be one of {self.path}, got one {found}")
        check_in_transaction(connection)
        try:
            # The empty owner leaves the change for the owner, even if that is this process.
            statement = statements.Statements(connection, "", self.partitions, self.clock_us())
            (result,) = statement.execute_all([operation])
        except _BAD_ROW as error:
            raise BadRowError(str(error)) from error
        except sqlite3.Error as error:
            raise StoreError(str(error)) from error
        is_hinted = not self._is_open or id(connection) in self._users
        if statement.has_left and not is_hinted:
            self._hint_after(connection)
        return result


def _is_in_transaction(connection: sqlite3.Connection) -> bool:
    try:
        return connection.in_transaction
    except sqlite3.ProgrammingError:  # closed
        return False


def _connect(path: Path) -> sqlite3.Connection:
    connection = _opened(path)
    try:
        use_wal(connection, _BUSY_SECONDS)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 1000")
        # A statement of many rows copies each page that it changes, by default to a temporary file.
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA journal_size_limit = 67108864")
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_reader(path: Path) -> sqlite3.Connection:
    connection = _opened(path)
    try:
        connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
