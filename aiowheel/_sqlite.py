"""Connections to a SQLite file: transactions, a thread, and a check of its version. Rank 4."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Generator
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, TypeAlias, TypeVar

from aiowheel._arguments import safe_repr
from aiowheel._background import settle

T = TypeVar("T")

#: Errors of a value in a statement; the connection stays usable.
VALUE_ERRORS: Final = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError)

#: The function to run, and the loop and future that get its outcome; None ends the thread.
_Call: TypeAlias = tuple[
    Callable[[sqlite3.Connection], Any] | None, asyncio.AbstractEventLoop, "asyncio.Future[Any]"
]


def checked_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a database.

    Raises:
        TypeError: *path* is not a path of text.
        ValueError: *path* names no file. The names that SQLite gives another meaning are refused.
    """
    try:
        found = Path(path)
    except TypeError:
        raise TypeError(f"path must be a path, got {safe_repr(path)}") from None
    text = os.fspath(path)
    if text in {"", ":memory:"} or text.startswith("file:") or not found.absolute().name:
        raise ValueError(f"path must be the path of a file, got {safe_repr(path)}")
    return found


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Generator[None]:
    """Run the block in a transaction; roll back if the block or the commit raises.

    Args:
        connection: A connection in autocommit mode, `isolation_level=None`.
        begin: "BEGIN" for a block that only reads. With it, a block that writes fails at once,
            despite the timeout, if another connection has written since the block began.
    """
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def check_in_transaction(connection: sqlite3.Connection) -> None:
    """Raise if each statement on *connection* would be a transaction of its own.

    Raises:
        ValueError: It is in autocommit mode, and no transaction has begun.
    """
    # Python 3.12 has a second way to set this mode.
    is_autocommit = getattr(connection, "autocommit", False) is True
    is_autocommit = is_autocommit or connection.isolation_level is None
    if is_autocommit and not connection.in_transaction:
        raise ValueError("connection must be in a transaction, got one in autocommit mode")


def use_wal(connection: sqlite3.Connection, patience: float) -> None:
    """Switch the file to write-ahead logging, unless it has it.

    SQLite does not wait for every lock of the switch: processes that open a new file at the same
    time may collide.

    Args:
        connection: A connection that is not in a transaction.
        patience: Seconds to wait for another process.

    Raises:
        sqlite3.OperationalError: The file is locked for too long, or cannot be used.
    """
    last_moment = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > last_moment:
                raise
            time.sleep(0.01)
        else:
            return


class ConnectionThread:
    """A thread with a connection to a file, which is opened at its first use.

    The connection is opened again after an error, and after the file was replaced. A call costs
    about half as much as one through an executor.

    Args:
        name: The name of the thread.
        path: The path of the file.
        connect: Opens the connection; called in the thread.
    """

    def __init__(
        self, name: str, path: Path, connect: Callable[[Path], sqlite3.Connection]
    ) -> None:
        self._name = name
        self._path = path
        self._connect = connect
        self._identity: tuple[int, int] | None = None
        self._calls: SimpleQueue[_Call] | None = None
        self._connection: sqlite3.Connection | None = None

    def run(self, call: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run `call(connection)` in the thread, after the earlier calls.

        It runs even if the future is cancelled. The future gets the result or the error of the
        call, or the error of opening the connection.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._calls is None:
            self._calls = SimpleQueue()
            # A daemon thread, so that a store that is never closed does not keep the process alive.
            Thread(target=self._work, args=(self._calls,), name=self._name, daemon=True).start()
        self._calls.put((call, loop, future))
        return future

    def _work(self, calls: SimpleQueue[_Call]) -> None:
        is_open = True
        while is_open:
            call, loop, future = calls.get()
            is_open = call is not None
            outcome: object = None
            if call is None:
                self._drop()
            else:
                outcome = self._outcome(call)
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(settle, future, outcome)
            del call, loop, future, outcome  # the waiting thread must not keep them alive

    def _outcome(self, call: Callable[[sqlite3.Connection], object]) -> object:
        """Return the result of *call*, or the exception that it raised."""
        try:
            if self._connection is not None and self._identity != identity_of(self._path):
                self._drop()
            if self._connection is None:
                # Before the opening, during which the file may be replaced. A new file has no
                # identity then, and is opened twice.
                self._identity = identity_of(self._path)
                self._connection = self._connect(self._path)
            return call(self._connection)
        except BaseException as error:
            if isinstance(error, sqlite3.Error) and not isinstance(error, VALUE_ERRORS):
                self._drop()
            return error

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    async def aclose(self) -> None:
        """Close the connection and end the thread; idempotent."""
        calls, self._calls = self._calls, None
        if calls is not None:
            loop = asyncio.get_running_loop()
            closed: asyncio.Future[None] = loop.create_future()
            calls.put((None, loop, closed))
            await closed


class FileLook:
    """A check of a file's version in the event loop: microseconds, and no wait for a lock.

    Every process makes it four times a second. Through a thread it would cost thirty times as much.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: sqlite3.Connection | None = None
        self._seen: tuple[object, object] | None = None

    def may_have_changed(self) -> bool:
        """Return False only if the file was neither written nor replaced since the last call."""
        identity = identity_of(self._path)
        try:
            if self._file is None or self._seen is None or self._seen[0] != identity:
                self.close()
                # Without this mode, SQLite would create a file that was removed.
                address = f"{self._path.as_uri()}?mode=rw"
                self._file = sqlite3.connect(address, timeout=0, uri=True, isolation_level=None)
            ((version,),) = self._file.execute("PRAGMA data_version").fetchall()
        except sqlite3.Error:
            self.close()
            return True
        before, self._seen = self._seen, (identity, version)
        return before != self._seen

    def close(self) -> None:
        """Close the connection; the next check opens one and reports a change."""
        file, self._file, self._seen = self._file, None, None
        if file is not None:
            file.close()


def identity_of(path: Path) -> tuple[int, int] | None:
    """Return the device and the inode of the file; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
