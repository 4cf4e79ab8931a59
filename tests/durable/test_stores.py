"""Every store keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiowheel.durable import MemoryStore, SQLiteStore, Store
from aiowheel.durable.testing import StoreContract

pytestmark = [pytest.mark.one_build, pytest.mark.realtime]


class TestMemoryStore(StoreContract):
    """In memory."""

    async def make_store(self) -> Store:
        """A new one."""
        return MemoryStore()

    async def same_store(self, store: Store) -> Store:
        """The object itself holds the data."""
        return store


class TestSQLiteStore(StoreContract):
    """In a file."""

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        """Where the files are."""
        self.path = tmp_path / "timers.db"

    async def make_store(self) -> Store:
        """A new file."""
        return SQLiteStore(self.path)

    async def same_store(self, store: Store) -> Store:
        """The same file."""
        return SQLiteStore(self.path)


class TestPostgresStore(StoreContract):
    """On a server."""

    @pytest.fixture(autouse=True)
    def database_address(self, database: str) -> None:
        """Where the tables are."""
        self.address = database

    async def make_store(self) -> Store:
        """An empty database."""
        from aiowheel.durable import PostgresStore

        return PostgresStore(self.address, partitions=8)

    async def same_store(self, store: Store) -> Store:
        """The same database."""
        return await self.make_store()
