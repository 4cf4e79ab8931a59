"""Every store keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiowheel.durable import MemoryStore, SQLiteStore, Store
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


class TestSQLiteStore(StoreContract):
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


class TestPostgresStore(StoreContract):
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
