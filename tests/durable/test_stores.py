"""Every store keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiowheel.durable import MemoryStore, SQLiteStore, Store
from aiowheel.durable._operations import LARGE_PAYLOAD, UNREAD, Cursor, Put
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
    """The contract of a store in a database, which leaves large payloads there."""

    async def test_large_payloads_are_read_one_by_one(self) -> None:
        """Time and memory of a page and of the changes do not depend on the payloads."""
        store = await self.make_store()
        await store.open()
        sizes = [0, 1, LARGE_PAYLOAD, LARGE_PAYLOAD + 1, 100_000]
        await store.renew("me", lease_us=10**9, horizon_us=10**9)
        puts = [Put(f"t{size}", "h", size, bytes(size)) for size in sizes]
        await store.commit("other", puts)
        wanted = {size: bytes(size) if size <= LARGE_PAYLOAD else UNREAD for size in sizes}

        pages = await store.page([Cursor(n, -1, 0) for n in range(store.partitions)], 10**9, 10)
        changes, _ = await store.changes("me")
        found = await store.get("t100000")
        await store.close()

        assert {row.due_us: row.payload for page in pages for row in page} == wanted
        changed = {each.row.due_us: each.row.payload for each in changes if each.row is not None}
        assert changed == wanted
        assert changed[100_000] is UNREAD
        assert found is not None
        assert found.payload == bytes(100_000)


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
