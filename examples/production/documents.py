"""Documents with versions, in SQLite or PostgreSQL; the counters are in the same database.

A document and its counter change in one transaction: a kill leaves both changes or none.
"""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Protocol, TypedDict

from aiowheel.shared import CounterStore, PostgresCounters, SqliteCounters


class Document(TypedDict):
    """A document as clients get it; version 0 means that it was never written."""

    name: str
    text: str
    version: int


class Documents(Protocol):
    """The interface of a store of documents."""

    async def read(self, name: str) -> Document:
        """Return a document."""
        ...

    async def write(self, name: str, text: str) -> int:
        """Change a document; return its version."""
        ...


@asynccontextmanager
async def open_documents(address: str) -> AsyncGenerator[tuple[Documents, CounterStore]]:
    """Open `sqlite:///path` or `postgresql://...`: the documents, and the store of their counters.

    The caller opens the store before the first write.
    """
    scheme, _, rest = address.partition("://")
    if scheme == "sqlite" and rest.startswith("/"):
        with closing(SqliteDocuments(Path(rest[1:]))) as documents:
            yield documents, documents.counters
    elif scheme == "postgresql":
        async with PostgresDocuments.opened(address) as postgres:
            yield postgres, postgres.counters
    else:
        raise ValueError("the database must be sqlite:///path or postgresql://...")


class SqliteDocuments:
    """Documents in a file: for the workers of one machine, without a server."""

    def __init__(self, path: Path) -> None:
        self.counters = SqliteCounters(path)
        self._thread = ThreadPoolExecutor(1, "documents")
        self._file = sqlite3.connect(
            path, timeout=30, isolation_level=None, check_same_thread=False
        )
        # The counters switch the file to write-ahead logging when they are opened.
        self._file.execute(
            "CREATE TABLE IF NOT EXISTS documents (name PRIMARY KEY, text, version) WITHOUT ROWID"
        )

    async def read(self, name: str) -> Document:
        """Return a document."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._read, name)

    async def write(self, name: str, text: str) -> int:
        """Change a document; return its version."""
        loop = asyncio.get_running_loop()
        version = await loop.run_in_executor(self._thread, self._write, name, text)
        # The counter is written already. This hint makes the other workers read it at once,
        # instead of at their next check within a quarter of a second.
        await self.counters.raise_to({name: version})
        return version

    def _read(self, name: str) -> Document:
        query = "SELECT text, version FROM documents WHERE name = ?"
        text, version = self._file.execute(query, (name,)).fetchone() or ("", 0)
        return {"name": name, "text": text, "version": version}

    def _write(self, name: str, text: str) -> int:
        self._file.execute("BEGIN IMMEDIATE")
        try:
            ((version,),) = self._file.execute(
                "INSERT INTO documents VALUES (?, ?, 1) ON CONFLICT (name) DO UPDATE"
                " SET text = excluded.text, version = version + 1 RETURNING version",
                (name, text),
            ).fetchall()
            self.counters.advance_in(self._file, name, version)
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")
        return int(version)

    def close(self) -> None:
        """Close the file."""
        self._thread.shutdown()
        self._file.close()


class PostgresDocuments:
    """Documents in PostgreSQL: for the workers of many machines."""

    def __init__(self, address: str, pool: Any) -> None:
        self.counters = PostgresCounters(address)
        self._pool = pool

    @classmethod
    @asynccontextmanager
    async def opened(cls, address: str) -> AsyncGenerator["PostgresDocuments"]:
        """Connect, and make the table where it is missing."""
        import asyncpg

        async with asyncpg.create_pool(address, min_size=1, max_size=4) as pool:
            async with pool.acquire() as connection, connection.transaction():
                # Two workers may start at the same moment: one creates the table.
                await connection.execute("SELECT pg_advisory_xact_lock(4711)")
                await connection.execute(
                    "CREATE TABLE IF NOT EXISTS documents"
                    " (name text PRIMARY KEY, text text NOT NULL, version bigint NOT NULL)"
                )
            yield cls(address, pool)

    async def read(self, name: str) -> Document:
        """Return a document."""
        row = await self._pool.fetchrow("SELECT text, version FROM documents WHERE name = $1", name)
        text, version = row or ("", 0)
        return {"name": name, "text": text, "version": version}

    async def write(self, name: str, text: str) -> int:
        """Change a document; return its version."""
        async with self._pool.acquire() as connection, connection.transaction():
            version = await connection.fetchval(
                "INSERT INTO documents VALUES ($1, $2, 1) ON CONFLICT (name) DO UPDATE"
                " SET text = excluded.text, version = documents.version + 1 RETURNING version",
                name,
                text,
            )
            await self.counters.advance_in(connection, name, version)
        return int(version)
