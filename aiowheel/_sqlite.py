"""Connections to a SQLite file: transactions, a thread, a look at the file's version. Rank 4."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Generator
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")

#: Errors of a value in a statement; the connection is as good as before.
VALUE_ERRORS: Final = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError)

#: What to run, and where its outcome goes; None ends the thread.
_Call: TypeAlias = tuple[
    Callable[[sqlite3.Connection], Any] | None, asyncio.AbstractEventLoop, "asyncio.Future[Any]"
]
_Outcome: TypeAlias = tuple[object, BaseException | None]


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


class ConnectionThread:
    """A thread with a connection to a file, which is opened when it is used.

    It is opened again after an error, and when the file was replaced. A call and its result cost
    about half of what they cost through an executor.

    Args:
        name: Of the thread.
        path: Of the file.
        connect: Opens the connection, on the thread.
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
        """Run `call(connection)` on the thread, after the calls before it.

        It is run even if the future is cancelled. The future has the call's error, or that of
        opening the connection.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._calls is None:
            self._calls = SimpleQueue()
            # A daemon: a store that is never closed must not keep the process alive.
            Thread(target=self._work, args=(self._calls,), name=self._name, daemon=True).start()
        self._calls.put((call, loop, future))
        return future

    def _work(self, calls: SimpleQueue[_Call]) -> None:
        is_open = True
        while is_open:
            call, loop, future = calls.get()
            is_open = call is not None
            outcome = self._drop() if call is None else self._outcome(call)
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(_settle, future, *outcome)
            del call, loop, future, outcome  # a thread that waits must not keep them alive

    def _outcome(self, call: Callable[[sqlite3.Connection], object]) -> _Outcome:
        try:
            if self._connection is not None and self._identity != identity_of(self._path):
                self._drop()
            if self._connection is None:
                self._connection = self._connect(self._path)
                self._identity = identity_of(self._path)
            return call(self._connection), None
        except BaseException as error:
            if isinstance(error, sqlite3.Error) and not isinstance(error, VALUE_ERRORS):
                self._drop()
            return None, error

    def _drop(self) -> _Outcome:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
        return None, None

    async def aclose(self) -> None:
        """Close the connection and end the thread; idempotent."""
        calls, self._calls = self._calls, None
        if calls is not None:
            loop = asyncio.get_running_loop()
            closed: asyncio.Future[None] = loop.create_future()
            calls.put((None, loop, closed))
            await closed


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():  # cancelled
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class FileLook:
    """A look at a file's version from the event loop: microseconds, and it never waits for a lock.

    A question to a thread costs thirty times as much, four times a second, in every process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: sqlite3.Connection | None = None
        self._seen: tuple[object, object] | None = None

    def may_have_changed(self) -> bool:
        """Return whether the file was written or replaced since the last call, or may have been."""
        identity = identity_of(self._path)
        try:
            if self._file is None or self._seen is None or self._seen[0] != identity:
                self.close()
                # Without a mode SQLite would make a file that was removed.
                address = f"{self._path.as_uri()}?mode=rw"
                self._file = sqlite3.connect(address, timeout=0, uri=True, isolation_level=None)
            ((version,),) = self._file.execute("PRAGMA data_version").fetchall()
        except sqlite3.Error:
            self.close()
            return True
        before, self._seen = self._seen, (identity, version)
        return before != self._seen

    def close(self) -> None:
        """Close the connection; the next look opens one, and finds the file changed."""
        file, self._file, self._seen = self._file, None, None
        if file is not None:
            file.close()


def identity_of(path: Path) -> tuple[int, int] | None:
    """Return what tells the file from one that has replaced it; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
