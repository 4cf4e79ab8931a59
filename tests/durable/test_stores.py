"""Every store keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiowheel.durable import MemoryStore, SQLiteStore, Store
from aiowheel.durable._databases import PAGE_BYTES
from aiowheel.durable._operations import Cursor, Put, Row
from aiowheel.durable.testing import StoreContract

pytestmark = [pytest.mark.one_build, pytest.mark.realtime]


class TestMemoryStore(StoreContract):
    """The contract of the store in memory."""

    async def make_store(self) -> Store:
        """Return a new store."""
        return MemoryStore()

    async def same_store(self, store: Store) -> Store:
        """Return the same object, which holds the data."""
        return store


class OnDisk(StoreContract):
    """The contract of a store in a database, whose pages of large payloads end early."""

    async def test_the_payloads_of_a_page_are_limited(self) -> None:
        """Memory and time of a page do not depend on the payloads, apart from one per partition."""
        store = await self.make_store()
        await store.open()
        size = PAGE_BYTES // 32
        names = [f"t{n}" for n in range(100)]
        await store.commit("me", [Put(name, "h", 0, name.encode() + bytes(size)) for name in names])
        read: list[Row] = []
        cursors = [Cursor(part, -1, 0) for part in range(store.partitions)]
        while cursors:
            pages = await store.page(cursors, 0, 1000)
            found = [row for page in pages for row in page]
            assert sum(len(row.payload) for row in found) < 2 * PAGE_BYTES
            read += found
            cursors = [Cursor(page[-1].part, 0, page[-1].id) for page in pages if page]
        await store.close()

        assert sorted(row.name for row in read) == sorted(names)
        assert all(row.payload == row.name.encode() + bytes(size) for row in read)
        for part in range(store.partitions):
            ids = [row.id for row in read if row.part == part]
            assert ids == sorted(ids)

    async def test_a_page_has_a_row_whatever_its_payload(self) -> None:
        """A page without a row would mean that there are none left."""
        store = await self.make_store()
        await store.open()
        await store.commit("me", [Put("t", "h", 0, bytes(2 * PAGE_BYTES))])
        (row,) = await store.rows()
        pages = await store.page([Cursor(row.part, -1, 0)], 0, 1000)
        await store.close()

        assert pages == [[row]]


class TestSQLiteStore(OnDisk):
    """The contract of the store in an SQLite file."""

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        """Set the path of the file."""
        self.path = tmp_path / "timers.db"

    async def make_store(self) -> Store:
        """Return a store on a new file."""
        return SQLiteStore(self.path)

    async def same_store(self, store: Store) -> Store:
        """Return a store on the same file."""
        return SQLiteStore(self.path)


class TestPostgresStore(OnDisk):
    """The contract of the store in PostgreSQL."""

    @pytest.fixture(autouse=True)
    def database_address(self, database: str) -> None:
        """Set the address of the database."""
        self.address = database

    async def make_store(self) -> Store:
        """Return a store on an empty database."""
        from aiowheel.durable import PostgresStore

        return PostgresStore(self.address, partitions=8)

    async def same_store(self, store: Store) -> Store:
        """Return a store on the same database."""
        return await self.make_store()
