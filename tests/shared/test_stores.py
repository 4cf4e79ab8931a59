"""Every store of shared counters keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiowheel.shared import CounterStore, PostgresCounters, RedisCounters, SqliteCounters
from aiowheel.testing import MemoryCounters, counter_store_checks
from aiowheel.testing._store_checks import StoreCheck

from .servers import PostgresServer, RedisServer

pytestmark = [pytest.mark.both_loops, pytest.mark.one_build, pytest.mark.realtime]

CHECKS = pytest.mark.parametrize("check", counter_store_checks(), ids=lambda each: each.__name__)


@CHECKS
async def test_counters_in_memory(check: StoreCheck) -> None:
    """The store for tests passes each check."""
    first = MemoryCounters()

    await check(first.beside)


@CHECKS
async def test_sqlite(check: StoreCheck, tmp_path: Path) -> None:
    """The SQLite store passes each check."""

    def connect() -> CounterStore:
        return SqliteCounters(tmp_path / "counters.db")

    await check(connect)


@CHECKS
async def test_postgres(check: StoreCheck, postgres_server: PostgresServer) -> None:
    """The PostgreSQL store passes each check on unlogged tables; the statements are the same."""

    def connect() -> CounterStore:
        return PostgresCounters(postgres_server.dsn)

    await check(connect)


@CHECKS
async def test_redis(check: StoreCheck, steady_redis: RedisServer) -> None:
    """The Redis store passes each check on one server."""

    def connect() -> CounterStore:
        return RedisCounters(steady_redis.address)

    await check(connect)
