"""A thread with a connection to a SQLite file. Rank 4."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from aiowheel._sqlite import identity_of
from aiowheel.errors import StoreUnavailableError

T = TypeVar("T")
A = TypeVar("A")

_BUSY = 5.0  # seconds that SQLite waits for another writer

_SCHEMA = """
CREATE TABLE IF NOT EXISTS aiowheel_epoch (
    one INTEGER PRIMARY KEY CHECK (one = 1), epoch TEXT NOT NULL, rev INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS aiowheel_counters (
    key TEXT PRIMARY KEY, value INTEGER NOT NULL, rev INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS aiowheel_counters_rev ON aiowheel_counters (rev);
"""


class SqliteThread:
    """A thread with a connection of its own, which is made anew when the file was replaced."""

    def __init__(self, path: Path, name: str, *, synced: bool) -> None:
        self._path = path
        self._name = name
        self._synced = synced
        self._pool: ThreadPoolExecutor | None = None
        self._file: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    async def run(self, step: Callable[[sqlite3.Connection, A], T], argument: A) -> T:
        """Call `step(connection, argument)` on the thread.

        Raises:
            StoreUnavailableError: The file is locked for too long, or cannot be used at present.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix=self._name)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._call, step, argument)

    def _call(self, step: Callable[[sqlite3.Connection, A], T], argument: A) -> T:
        try:
            return step(self._connection(), argument)
        except sqlite3.OperationalError as error:
            self._close()
            raise StoreUnavailableError(f"{self._path}: {error}") from error

    def _connection(self) -> sqlite3.Connection:
        if self._file is not None:
            if self._identity == identity_of(self._path):
                return self._file
            self._close()
        self._file = _connected(self._path, synced=self._synced)
        self._identity = identity_of(self._path)
        return self._file

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    async def aclose(self) -> None:
        """Close the connection and end the thread; idempotent."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.get_running_loop().run_in_executor(pool, self._close)
            pool.shutdown(wait=False)


def _connected(path: Path, *, synced: bool) -> sqlite3.Connection:
    """Open the file, and make the tables where they are missing."""
    last_moment = time.monotonic() + _BUSY
    while True:
        file = sqlite3.connect(path, timeout=_BUSY, isolation_level=None)
        try:
            # Nothing waits for the switch to the log: two processes may collide in it.
            file.execute("PRAGMA journal_mode = WAL")
            file.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
            known = "SELECT 1 FROM sqlite_master WHERE name = 'aiowheel_counters_rev'"
            if file.execute(known).fetchone() is None:
                file.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        except BaseException as error:
            file.close()
            locked = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
            if not locked or time.monotonic() > last_moment:
                raise
            time.sleep(0.01)
        else:
            return file
