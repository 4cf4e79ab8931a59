"""Failures of a store raise errors in its callers; firing continues after the failure."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from aiowheel.durable import DurableTimers, Fire, NewTimer, PostgresStore, SQLiteStore, StoreError
from aiowheel.durable.operations import Cursor
from benchmarks._postgres import PostgresMissingError
from tests.shared.servers import PostgresServer, postgres_that_stops

from .links import Fired, pages_read, until

pytestmark = [
    pytest.mark.one_build,
    pytest.mark.posix,
    pytest.mark.realtime,
    pytest.mark.slow,
]

NOW = timedelta(0)
FAR = timedelta(days=1)


@asynccontextmanager
async def opened(store: Any, fired: Fired) -> AsyncGenerator[DurableTimers]:
    """Open timers with a recording handler."""
    timers = DurableTimers(store, lease=2)
    timers.handler("h")(fired)
    async with timers:
        yield timers


async def schedule_until_accepted(timers: DurableTimers, name: str) -> int:
    """Schedule repeatedly until the store accepts the timer; return the number of errors."""
    errors = 0
    async with asyncio.timeout(60):
        while True:
            try:
                await timers.schedule(name, "h", due=NOW)
            except StoreError:
                errors += 1
                await asyncio.sleep(0.05)
            else:
                return errors


async def connected(database: str) -> Any:
    """Return a connection of the user."""
    return await import_module("asyncpg").connect(database)


# --- PostgreSQL ---------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server that the test may stop."""
    pytest.importorskip("asyncpg")
    try:
        with postgres_that_stops() as running:
            yield running
    except PostgresMissingError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize(
    "restarts", [pytest.param(2, id="few"), pytest.param(20, marks=pytest.mark.durable)]
)
@pytest.mark.timeout(600)
async def test_a_server_that_crashes_loses_nothing(restarts: int, server: PostgresServer) -> None:
    """Each confirmed timer fires; calls raise while the server is down, and no call hangs."""
    fired = Fired()
    confirmed: set[str] = set()
    errors = 0
    async with opened(PostgresStore(server.dsn, partitions=4), fired) as timers:

        async def client(place: int) -> None:
            nonlocal errors
            for step in range(1_000_000):
                name = f"{place}.{step}"
                try:
                    await timers.schedule(name, "h", due=timedelta(seconds=step % 3 / 2))
                    confirmed.add(name)
                except StoreError:
                    errors += 1
                await asyncio.sleep(0.02)

        clients = [asyncio.create_task(client(place)) for place in range(5)]
        for number in range(restarts):
            before, errors_before = len(confirmed), errors
            await until(lambda: len(confirmed) > before + 20)  # noqa: B023 - called at once
            await asyncio.to_thread(server.stop, (signal.SIGQUIT, signal.SIGINT)[number % 2])
            await until(lambda: errors > errors_before)  # noqa: B023
            await asyncio.to_thread(server.start)
        before = len(confirmed)
        await until(lambda: len(confirmed) > before + 20)
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await until(lambda: confirmed <= set(fired.names))


async def write_nothing_early(server: PostgresServer) -> None:
    """Have the server keep commits in its memory, without a copy on the disk."""
    connection = await connected(server.dsn)
    for setting in (
        "synchronous_commit = off",
        "bgwriter_lru_maxpages = 0",
        "autovacuum = off",
    ):
        await connection.execute(f"ALTER SYSTEM SET {setting}")
    await connection.close()
    server.stop()
    server.start()


async def test_a_fire_whose_acknowledgement_a_crash_has_lost_is_repeated(
    server: PostgresServer,
) -> None:
    """The server is back before the next call, so that no call fails."""
    fired = Fired()
    may_fire = asyncio.Event()
    await write_nothing_early(server)
    timers = DurableTimers(PostgresStore(server.dsn, partitions=4), lease=600)

    @timers.handler("h")
    async def record(fire: Fire) -> None:
        await may_fire.wait()
        fired(fire)

    async with timers:
        await timers.every("tick", "h", timedelta(hours=1), first=timedelta(seconds=1))
        await timers.schedule("once", "h", due=timedelta(seconds=1))
        connection = await connected(server.dsn)
        await connection.execute("CHECKPOINT")
        wal_writer = await connection.fetchval(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'"
        )
        os.kill(wal_writer, signal.SIGSTOP)  # it would write the acknowledgements at some moment
        may_fire.set()
        await until(lambda: timers.statistics().acknowledged == 2)
        os.kill(wal_writer, signal.SIGKILL)  # the server restarts by itself
        await until(lambda: timers.statistics().acknowledged == 4)

        assert sorted(fired.names) == ["once", "once", "tick", "tick"]
        assert timers.statistics().store_errors == 0
        connection.terminate()


async def test_a_database_that_is_read_only_for_a_while_is_an_error(database: str) -> None:
    """Calls raise while the database is read-only; due timers fire afterwards."""
    name = database.rpartition("/")[2]
    fired = Fired()
    async with opened(PostgresStore(database, partitions=4), fired) as timers:
        await timers.schedule("before", "h", due=timedelta(seconds=0.5))
        connection = await connected(database)

        async def make(read_only: str) -> None:
            await connection.execute(
                f"ALTER DATABASE {name} SET default_transaction_read_only = {read_only}"
            )
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'aiowheel durable' AND datname = current_database()"
            )

        await make("on")
        with pytest.raises(StoreError):
            async with asyncio.timeout(30):
                while True:  # the first calls may fail because of the lost connection
                    with suppress(StoreError):
                        await timers.schedule("never", "h", due=FAR)
                    await timers.schedule("refused", "h", due=FAR)
        await connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE")
        await make("off")
        await connection.close()
        await schedule_until_accepted(timers, "after")
        await until(lambda: {"before", "after"} <= set(fired.names))


async def test_a_held_snapshot_does_not_slow_the_reading_of_pages(database: str) -> None:
    """Dead rows before the cursor, which vacuum cannot remove yet, are not read again."""
    fired = Fired()
    async with opened(PostgresStore(database, partitions=1), fired) as timers:
        holder = await connected(database)
        snapshot = holder.transaction(isolation="repeatable_read")
        await snapshot.start()
        await holder.fetchval("SELECT count(*) FROM aiowheel_timers")
        await timers.schedule_many(NewTimer(f"t{n}", "h", NOW) for n in range(5000))
        await until(lambda: len(fired.names) == 5000)
        await timers.schedule("far", "h", due=timedelta(minutes=10))
        due_us = (await holder_now(database)) + 10**6
        reader = await connected(database)
        reads = await pages_read(reader, [Cursor(0, due_us, 0)], due_us + 10**9)
        await snapshot.rollback()
        await reader.close()
        await holder.close()

        assert reads <= 10


async def holder_now(database: str) -> int:
    """Return the server's time in microseconds."""
    connection = await connected(database)
    now = await connection.fetchval("SELECT (extract(epoch FROM now()) * 1000000)::bigint")
    await connection.close()
    return int(now)


# --- SQLite -------------------------------------------------------------------------------------


async def test_a_full_disk_is_an_error_for_as_long_as_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls raise while no file can grow; no confirmed timer is lost."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the limit would truncate bytecode files
    resource = pytest.importorskip("resource")
    fired = Fired()
    path = tmp_path / "app.db"
    async with opened(SQLiteStore(path), fired) as timers:
        await timers.schedule("before", "h", due=timedelta(seconds=0.5))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8_192, limits[1]))
        try:
            with pytest.raises(StoreError):
                await timers.schedule("refused", "h", due=NOW, payload=bytes(100_000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        await schedule_until_accepted(timers, "after")
        await until(lambda: {"before", "after"} <= set(fired.names))
    check(path)


async def test_a_file_that_is_read_only_for_a_while_is_an_error(tmp_path: Path) -> None:
    """SQLite refuses to write on one connection; the next connection can write."""
    fired = Fired()
    store = SQLiteStore(tmp_path / "app.db")
    async with opened(store, fired) as timers:
        await timers.schedule("before", "h", due=timedelta(seconds=0.5))
        await forbid_writing(store)
        with pytest.raises(StoreError, match="readonly"):
            await timers.schedule("refused", "h", due=NOW)
        await schedule_until_accepted(timers, "after")
        await until(lambda: {"before", "after"} <= set(fired.names))


async def forbid_writing(store: SQLiteStore) -> None:
    """Make the store's connection read-only until the error drops it."""

    def forbid(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA query_only = ON")

    await store._writer.run(forbid)


async def test_a_held_snapshot_delays_no_fire_and_the_log_shrinks_after_it(tmp_path: Path) -> None:
    """A reader of the user prevents SQLite from resetting the write-ahead log during its read."""
    fired = Fired()
    path = tmp_path / "app.db"
    log = tmp_path / "app.db-wal"
    async with opened(SQLiteStore(path), fired) as timers:
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM aiowheel_timers").fetchall()
        await timers.schedule_many(NewTimer(f"t{n}", "h", NOW, bytes(1000)) for n in range(5_000))
        await until(lambda: timers.statistics().acknowledged == 5_000)
        reader.execute("ROLLBACK")
        reader.close()
        held = log.stat().st_size
        for again in range(10):
            await timers.schedule_many(
                NewTimer(f"{again}.{n}", "h", FAR, bytes(1000)) for n in range(1_000)
            )
        assert log.stat().st_size < 1.5 * held
    check(path)


def check(path: Path) -> None:
    """Run SQLite's integrity check on the file."""
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
