"""A thread with a connection to a SQLite file. Rank 4."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from aiowheel._sqlite import ConnectionThread, use_wal
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
    """A thread with its own connection, which raises the errors of a counter store."""

    def __init__(self, path: Path, name: str, *, synced: bool) -> None:
        self._path = path
        self._thread = ConnectionThread(name, path, partial(_connected, synced=synced))

    async def run(self, step: Callable[[sqlite3.Connection, A], T], argument: A) -> T:
        """Call `step(connection, argument)` on the thread.

        Raises:
            StoreUnavailableError: The file is locked for too long, or cannot be used at present.
        """
        try:
            return await self._thread.run(lambda connection: step(connection, argument))
        except sqlite3.OperationalError as error:
            raise StoreUnavailableError(f"{self._path}: {error}") from error

    async def aclose(self) -> None:
        """Close the connection and end the thread; idempotent."""
        await self._thread.aclose()


def _connected(path: Path, *, synced: bool) -> sqlite3.Connection:
    """Open the file, and create missing tables."""
    file = sqlite3.connect(path, timeout=_BUSY, isolation_level=None)
    try:
        use_wal(file, _BUSY)
        file.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
        known = "SELECT 1 FROM sqlite_master WHERE name = 'aiowheel_counters_rev'"
        if file.execute(known).fetchone() is None:
            file.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
    except BaseException:
        file.close()
        raise
    return file
