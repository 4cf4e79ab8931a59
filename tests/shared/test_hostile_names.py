"""SQL of others is not executed: neither that in keys, names and payloads, nor their functions."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import aclosing, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

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


async def test_functions_of_other_roles_are_not_called(
    process: Process, postgres_server: PostgresServer
) -> None:
    """PostgreSQL prefers a function of exactly the types of the arguments to its own one."""
    asyncpg: Any = pytest.importorskip("asyncpg")
    schema = f"planted_{uuid.uuid4().hex}"
    dsn = f"{postgres_server.dsn}?search_path={schema}"
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(
            f"""
            CREATE SCHEMA {schema};
            CREATE FUNCTION unnest(text[]) RETURNS SETOF text LANGUAGE plpgsql
            AS $$ BEGIN RAISE 'called'; END $$;
            CREATE FUNCTION pg_advisory_xact_lock(integer) RETURNS void LANGUAGE plpgsql
            AS $$ BEGIN RAISE 'called'; END $$;
            CREATE FUNCTION step(json, text, bigint) RETURNS json LANGUAGE plpgsql
            AS $$ BEGIN RAISE 'called'; END $$;
            CREATE AGGREGATE json_object_agg(text, bigint) (SFUNC = step, STYPE = json);
            """
        )
        with pytest.raises(asyncpg.RaiseError):
            await connection.fetch("SELECT unnest('{a}'::text[])")
        async with process(PostgresCounters(dsn)) as (_, shared):
            await shared.advance("key", 1)
            await shared.check_and_complete("check")
            assert await shared.value("key") == 1
        async with aclosing(PostgresCounters(dsn)) as store:
            assert (await store.compare_and_raise({"key": (1, 2)}))[1] == {"key"}
    finally:
        await connection.execute(f"DROP SCHEMA {schema} CASCADE")
        await connection.close()


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
