"""Keys, names and payloads that contain SQL are stored unchanged and are never executed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from aiowheel.durable import DurableTimers, Fire, SQLiteStore
from aiowheel.shared import CounterStore, PostgresCounters, SqliteCounters

from .conftest import Process
from .servers import PostgresServer

pytestmark = [pytest.mark.one_build, pytest.mark.realtime]

HOSTILE = (
    "'); DROP TABLE aiowheel_counters; --",
    '" OR 1=1; DELETE FROM aiowheel_timers; --',
    "$1; SELECT pg_sleep(60)",
    "%s%n{0}{key!r}\\x00\\",
    "?1 :name @name",
    "\u202e\x1b[2J\r\n",
)


async def count_with(process: Process, store: CounterStore) -> None:
    """Raise a counter of each name to a different value, and read all of them."""
    async with process(store) as (_, shared):
        for number, name in enumerate(HOSTILE, 1):
            await shared.advance(name, number)

        assert [await shared.value(name) for name in HOSTILE] == list(range(1, len(HOSTILE) + 1))


async def test_counters_in_sqlite(process: Process, tmp_path: Path) -> None:
    """The values are right, and the file is intact."""
    path = tmp_path / "counters.db"

    await count_with(process, SqliteCounters(path))

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_counters_in_postgres(process: Process, postgres_server: PostgresServer) -> None:
    """The names also pass through the payload of a notification."""
    await count_with(process, PostgresCounters(postgres_server.dsn, name="hostile"))


@pytest.mark.parametrize("name", ["x; DROP TABLE y", "a'b", 'a"b', "A", "", "x" * 41])
def test_a_name_of_a_store_is_a_plain_word(name: str) -> None:
    """The name becomes part of the names of tables, which cannot be parameters."""
    with pytest.raises(ValueError, match="name must be 1 to 40 lower-case letters"):
        PostgresCounters("postgresql://localhost/unused", name=name)


async def test_durable_timers(tmp_path: Path) -> None:
    """Names and payloads are read unchanged, also by a prefix."""
    timers = DurableTimers(SQLiteStore(tmp_path / "timers.db"))

    @timers.handler("h")
    async def handle(_: Fire) -> None:
        """Do nothing."""

    async with timers:
        for name in HOSTILE:
            await timers.schedule(name, "h", due=timedelta(days=1), payload=name.encode())

        rows = [row for name in HOSTILE async for row in timers.pending(name)]
        assert [(row.name, row.payload) for row in rows] == [
            (name, name.encode()) for name in HOSTILE
        ]
        assert [await timers.cancel(name) for name in HOSTILE] == [True] * len(HOSTILE)
