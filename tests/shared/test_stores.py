"""Every store of shared counters keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiowheel.shared import CounterStore, PostgresCounters, RedisCounters, SqliteCounters
from aiowheel.testing import MemoryCounters, counter_store_checks
from aiowheel.testing._store_checks import StoreCheck

pytestmark = [pytest.mark.both_loops, pytest.mark.one_build]

CHECKS = pytest.mark.parametrize("check", counter_store_checks(), ids=lambda each: each.__name__)


@CHECKS
async def test_counters_in_memory(check: StoreCheck) -> None:
    """The store for tests is one itself."""
    first = MemoryCounters()

    await check(first.beside)


@CHECKS
async def test_sqlite(check: StoreCheck, tmp_path: Path) -> None:
    """Without a server."""

    def connect() -> CounterStore:
        return SqliteCounters(tmp_path / "counters.db")

    await check(connect)


@CHECKS
@pytest.mark.parametrize("logged", [False, True], ids=["unlogged", "logged"])
async def test_postgres(check: StoreCheck, postgres: str, logged: bool) -> None:  # noqa: FBT001
    """Both kinds of tables."""

    def connect() -> CounterStore:
        return PostgresCounters(postgres, name=f"logged_{logged}".lower(), logged=logged)

    await check(connect)


@CHECKS
async def test_redis(check: StoreCheck, redis: str) -> None:
    """One server."""

    def connect() -> CounterStore:
        return RedisCounters(redis)

    await check(connect)
