"""Durable timers on a database, and the database alone.

A store is filled once; every round measures with these timers pending. The database alone has as
many rows and the same indexes. Payloads have 100 bytes, handlers do nothing, and every commit is
synced to disk.
"""

import asyncio
import gc
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from aiowheel.durable import DurableTimers, Fire, NewTimer, SQLiteStore, Store
from aiowheel.durable._committer import MOST_OPERATIONS
from aiowheel.durable._postgres_statements import DUE_INDEX
from aiowheel.durable._window import PAGE
from aiowheel.durable.operations import Cursor, Put
from aiowheel.timer import Histogram, Timer
from benchmarks._memory import resident_bytes
from benchmarks._side import Figures

PAYLOAD = bytes(100)
FAR = timedelta(days=30)
TASKS = (1, 100, 1000)
SLOWLY = 100  # fires per second, a rate at which PGQueuer is measured too


def _store(address: str, folder: str) -> Store:
    if address:
        from aiowheel.durable import PostgresStore

        return PostgresStore(address)
    return SQLiteStore(Path(folder) / "timers.db")


async def durable(
    address: str, pending: int, operations: int, overdue: int
) -> AsyncGenerator[Figures, None]:
    """Measure scheduling, cancelling, firing and restarting.

    Args:
        address: The address of a PostgreSQL server; "" for an SQLite file.
        pending: Number of timers in the store beforehand.
        operations: Number of operations of one figure in a round; a tenth for a single task.
        overdue: Number of timers that are due when the store is reopened.
    """
    with tempfile.TemporaryDirectory() as folder:
        fired = 0

        async def handle(_: Fire) -> None:
            nonlocal fired
            fired += 1

        def make() -> DurableTimers:
            timers = DurableTimers(_store(address, folder))
            timers.handler("h")(handle)
            return timers

        tenth = pending // 10
        async with make() as timers:
            await timers.schedule_many(
                NewTimer(f"pending:{n}", "h", FAR, PAYLOAD) for n in range(tenth)
            )
            resident = resident_bytes()
            await timers.schedule_many(
                NewTimer(f"pending:{n}", "h", FAR, PAYLOAD) for n in range(tenth, pending)
            )
            constant = {"grown_mb": (resident_bytes() - resident) / 2**20}
        size = await _size_in_postgres(address) if address else _size_of_file(folder)
        constant["bytes"] = size / pending
        number = 0
        while True:
            number += 1
            gc.collect()
            figures: Figures = {}
            async with make() as timers:
                for tasks in TASKS:
                    figures[f"schedule_{tasks}"] = await _schedule(
                        timers, f"{number}:{tasks}", tasks, operations
                    )
                figures["cancel"] = await _cancel(timers, f"{number}:{TASKS[-1]}", operations)
                names = (f"bulk:{number}:{n}" for n in range(operations))
                figures["bulk"] = await rate_of(
                    operations,
                    timers.schedule_many(NewTimer(name, "h", FAR, PAYLOAD) for name in names),
                )
                figures |= _lateness(await _on_time(timers, operations, 1000))
            async with make() as timers:
                slow = await _on_time(timers, max(1, operations // 40), SLOWLY)
                figures["late_slow_p99_ms"] = slow.quantile(0.99) * 1e3
            figures |= await _overdue(_store(address, folder), overdue)
            figures |= await _restart(make, overdue, lambda: fired)
            yield figures | constant


async def rate_of(count: int, work: Awaitable[object]) -> float:
    """Wait for *work*; return the rate of its *count* operations per second."""
    began = time.perf_counter()
    await work
    return count / (time.perf_counter() - began)


async def crowd_of(tasks: int, count: int, step: Callable[[int, int], Awaitable[object]]) -> float:
    """Run about *count* steps in concurrent tasks; return steps per second.

    Args:
        tasks: Number of tasks; each runs its steps one after the other.
        count: Number of steps of all tasks.
        step: Called with the number of the task and of its step.
    """
    each = max(1, count // tasks)

    async def one(place: int) -> None:
        for number in range(each):
            await step(place, number)

    async def everyone() -> None:
        await asyncio.gather(*(one(place) for place in range(tasks)))

    return await rate_of(each * tasks, everyone())


async def _schedule(timers: DurableTimers, prefix: str, tasks: int, operations: int) -> float:
    return await crowd_of(
        tasks,
        operations // 10 if tasks == 1 else operations,
        lambda place, step: timers.schedule(
            f"{prefix}:{place}:{step}", "h", due=FAR, payload=PAYLOAD
        ),
    )


async def _cancel(timers: DurableTimers, prefix: str, operations: int) -> float:
    return await crowd_of(
        TASKS[-1], operations, lambda place, step: timers.cancel(f"{prefix}:{place}:{step}")
    )


async def _on_time(timers: DurableTimers, count: int, rate: int) -> Histogram:
    """Fire *rate* timers per second; return their lateness."""
    start = timers.now() + timedelta(seconds=1 + count / 20_000)
    await timers.schedule_many(
        NewTimer(f"on time:{n}", "h", start + timedelta(seconds=n / rate), PAYLOAD)
        for n in range(count)
    )
    while timers.statistics().acknowledged < count:  # noqa: ASYNC110 - setting an event has a cost
        await asyncio.sleep(0.1)
    return timers.statistics().lateness


def _lateness(lateness: Histogram) -> Figures:
    return {
        "late_p50_ms": lateness.quantile(0.5) * 1e3,
        "late_p99_ms": lateness.quantile(0.99) * 1e3,
        "late_max_ms": lateness.maximum * 1e3,
    }


async def _overdue(store: Store, count: int) -> Figures:
    """Write due timers; return the time of starting a process and of reading a page."""
    await store.open()
    now_us = time.time_ns() // 1000
    for first in range(0, count, MOST_OPERATIONS):
        places = range(first, min(count, first + MOST_OPERATIONS))
        puts = [Put(f"late:{n}", "h", now_us - 10**6 + n, PAYLOAD) for n in places]
        await store.commit("bench", puts)
    cursors = [Cursor(part, 0, 0) for part in range(store.partitions)]
    began = time.perf_counter()
    await store.page(cursors, now_us, max(16, PAGE // store.partitions))
    page = time.perf_counter() - began
    await store.aclose()
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import aiowheel.durable"], check=True)  # noqa: ASYNC221
    start = time.perf_counter() - began
    return {"page_ms": page * 1e3, "start_ms": start * 1e3}


async def _restart(
    make: Callable[[], DurableTimers], count: int, fired: Callable[[], int]
) -> Figures:
    """Open a store with overdue timers; return the times of fires and the loop's longest gap."""
    before, gap = fired(), 0.0

    async def watch() -> None:
        nonlocal gap
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            gap, last = max(gap, now - last - 0.001), now

    watcher = asyncio.create_task(watch())
    began = time.perf_counter()
    async with make() as timers:
        while fired() == before:  # noqa: ASYNC110 - see above
            await asyncio.sleep(0)
        first = time.perf_counter() - began
        while fired() - before < count:  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.002)
        while timers.statistics().acknowledged < count:  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.002)
        everything = time.perf_counter() - began
    watcher.cancel()
    with suppress(asyncio.CancelledError):
        await watcher
    return {
        "first_fire_ms": first * 1e3,
        "fires": count / everything,
        "gap_ms": gap * 1e3,
    }


def _size_of_file(folder: str) -> int:
    return (Path(folder) / "timers.db").stat().st_size


async def _size_in_postgres(address: str) -> int:
    """Return the bytes of the table of timers and of its indexes."""
    connection = await _connect_postgres(address)
    try:
        return int(await connection.fetchval("SELECT pg_total_relation_size('aiowheel_timers')"))
    finally:
        await connection.close()


async def raw(address: str, pending: int, operations: int) -> AsyncGenerator[Figures, None]:
    """Insert the same rows without aiowheel: in single-row and in thousand-row commits.

    Args:
        address: The address of a PostgreSQL server; "" for an SQLite file.
        pending: Number of rows in the table beforehand.
        operations: Number of rows of one figure in a round; a tenth for single-row commits.
    """
    with tempfile.TemporaryDirectory() as folder:
        if address:
            await _make_postgres(address, pending)
        else:
            _make_sqlite(Path(folder) / "raw.db", pending)
        number = 0
        while True:
            number += 1
            gc.collect()
            if address:
                yield await _raw_postgres(address, number, operations)
            else:
                yield _raw_sqlite(Path(folder) / "raw.db", number, operations)


_COLUMNS = "name, handler, part, due_us, gen, attempt, payload"
_INSERT = f"INSERT INTO timers ({_COLUMNS}) VALUES (?, 'h', ?, ?, 1, 0, ?)"  # noqa: S608


def _connect_sqlite(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _make_sqlite(path: Path, pending: int) -> None:
    connection = _connect_sqlite(path)
    connection.execute(f"CREATE TABLE timers (id INTEGER PRIMARY KEY, {_COLUMNS})")
    connection.execute("CREATE UNIQUE INDEX by_name ON timers (name)")
    connection.execute("CREATE INDEX by_due ON timers (part, due_us)")
    for first in range(0, pending, 1000):
        places = range(first, min(pending, first + 1000))
        _insert_sqlite(connection, [f"pending:{n}" for n in places])
    connection.close()


def _names_of(number: int, size: int, first: int) -> list[str]:
    """Return the names that *size* tasks create: their rows lie far apart in the name index."""
    return [f"{number}:{size}:{place}:{first // size}" for place in range(size)]


def _insert_sqlite(connection: sqlite3.Connection, names: Sequence[str]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    rows = [(name, n % 8, time.time_ns() // 1000, PAYLOAD) for n, name in enumerate(names)]
    connection.executemany(_INSERT, rows)
    connection.execute("COMMIT")


def _raw_sqlite(path: Path, number: int, operations: int) -> Figures:
    connection = _connect_sqlite(path)
    figures: Figures = {}
    for size in (1, 1000):
        count = operations // 10 if size == 1 else operations
        began = time.perf_counter()
        for first in range(0, count, size):
            _insert_sqlite(connection, _names_of(number, size, first))
        figures[f"commits_of_{size}"] = count / (time.perf_counter() - began)
    connection.close()
    return figures


_INSERT_MANY = (
    f"INSERT INTO raw_timers ({_COLUMNS}) SELECT name, 'h', part, due, 1, 0, payload FROM "  # noqa: S608
    "unnest($1::text[], $2::integer[], $3::bigint[], $4::bytea[]) AS n (name, part, due, payload)"
)


async def _connect_postgres(address: str) -> Any:
    return await import_module("asyncpg").connect(address)


async def _make_postgres(address: str, pending: int) -> None:
    connection = await _connect_postgres(address)
    await connection.execute(
        "DROP TABLE IF EXISTS raw_timers; "
        'CREATE TABLE raw_timers (id bigserial, name text COLLATE "C" PRIMARY KEY, '
        "handler text, part integer, due_us bigint, gen bigint, attempt integer, payload bytea);"
        f"CREATE INDEX raw_by_due ON raw_timers ({DUE_INDEX})"
    )
    for first in range(0, pending, 1000):
        places = range(first, min(pending, first + 1000))
        await _insert_postgres(connection, [f"pending:{n}" for n in places])
    await connection.close()


async def _insert_postgres(connection: Any, names: Sequence[str]) -> None:
    await connection.execute(
        _INSERT_MANY,
        names,
        [n % 64 for n in range(len(names))],
        [time.time_ns() // 1000] * len(names),
        [PAYLOAD] * len(names),
    )


async def _raw_postgres(address: str, number: int, operations: int) -> Figures:
    connection = await _connect_postgres(address)
    figures: Figures = {}
    for size in (1, 1000):
        count = operations // 10 if size == 1 else operations
        began = time.perf_counter()
        for first in range(0, count, size):
            await _insert_postgres(connection, _names_of(number, size, first))
        figures[f"commits_of_{size}"] = count / (time.perf_counter() - began)
    await connection.close()
    return figures


async def wheel_alone(operations: int) -> AsyncGenerator[Figures, None]:
    """Measure a thousand timers per second on a `Timer`, without a database."""
    while True:
        gc.collect()
        async with Timer() as timer:
            for n in range(operations):
                timer.call_later(1 + n / 1000, int)
            await timer.sleep(1.5 + operations / 1000)
            yield _lateness(timer.statistics().lateness)
