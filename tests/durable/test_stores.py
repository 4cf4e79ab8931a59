"""Every store keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiowheel.durable import MemoryStore, SQLiteStore, Store
from aiowheel.durable._databases import PAGE_BYTES
from aiowheel.durable.operations import (
    LARGE_PAYLOAD,
    UNREAD,
    Cursor,
    DeadLetter,
    Placed,
    Put,
    Row,
    Settle,
)
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
        await store.aclose()

        assert {row.due_us: row.payload for page in pages for row in page} == wanted
        changed = {each.row.due_us: each.row.payload for each in changes if each.row is not None}
        assert changed == wanted
        assert changed[100_000] is UNREAD
        assert found is not None
        assert found.payload == bytes(100_000)

    async def test_lists_end_early_if_payloads_are_large(self) -> None:
        """Lists of timers and of dead letters are read in parts, each with at least one row."""
        store = await self.make_store()
        await store.open()
        sizes = [PAGE_BYTES // 3, 0, PAGE_BYTES // 2, 2 * PAGE_BYTES, 1, PAGE_BYTES, 5]
        names = [f"t{number}" for number in range(len(sizes))]
        puts = [Put(name, "h", 0, bytes(size)) for name, size in zip(names, sizes, strict=True)]
        placed = [await store.commit("me", [put]) for put in puts]
        lists = await all_rows(store)
        epochs = (await store.renew("me", lease_us=10**9, horizon_us=0)).epochs
        for (each,) in placed:
            assert isinstance(each, Placed)
            id_, name, part = each.row.id, each.row.name, each.row.part
            settle = Settle(id_, name, 1, part, epochs[part], None, 2, error="x", attempts=1)
            assert await store.commit("me", [settle]) == ["done"]
        letters: list[list[DeadLetter]] = []
        while page := await store.dead_letters(after=letters[-1][-1].id if letters else 0):
            letters.append(page)
        await store.aclose()

        for pages in (lists, letters):
            assert [[len(row.payload) for row in page] for page in pages] == [
                *(sizes[:4], sizes[4:6], sizes[6:])
            ]


async def all_rows(store: Store) -> list[list[Row]]:
    """Return the pages of all timers."""
    pages: list[list[Row]] = []
    while page := await store.rows(after=pages[-1][-1].name if pages else ""):
        pages.append(page)
    return pages


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
