"""Steady load for minutes: fires on time, page reads, and the write-ahead log.

`AIOWHEEL_LOAD_SECONDS` sets how long the load lasts; a minute by default.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from aiowheel.durable import DurableTimers, Fire, NewTimer, PostgresStore, SQLiteStore, Store
from aiowheel.durable.operations import Cursor

from .links import pages_read

pytestmark = [pytest.mark.one_build, pytest.mark.realtime, pytest.mark.slow, pytest.mark.durable]

SECONDS = int(os.environ.get("AIOWHEEL_LOAD_SECONDS", "60"))
RATE = 150  # timers scheduled per second; a third of them is cancelled
LEAD = 40  # seconds until they are due, which is beyond the half of the window
MOST_LATE = 5  # seconds, on a busy machine
MOST_LOG = 64 * 2**20  # bytes
PARTITIONS = 4


class Load:
    """Timers that are scheduled, cancelled and fired each second.

    Attributes:
        timers: The durable timers.
        fired: The number of fires of each timer.
        early: The timers that fired before they were due.
        late: The timers that fired more than `MOST_LATE` seconds after that.
    """

    def __init__(self, timers: DurableTimers) -> None:
        self.timers = timers
        self._kept: set[str] = set()
        self._second = 0
        self.fired: dict[str, int] = {}
        self.early: list[str] = []
        self.late: list[str] = []
        timers.handler("h")(self._on_fire)

    def _on_fire(self, fire: Fire) -> None:
        self.fired[fire.name] = self.fired.get(fire.name, 0) + 1
        lateness = (self.timers.now() - fire.due).total_seconds()
        if lateness < 0:
            self.early.append(fire.name)
        elif lateness > MOST_LATE:
            self.late.append(fire.name)

    async def last(self, seconds: int, each: Callable[[], Awaitable[object]]) -> None:
        """Keep up the load, and call *each* once a second."""
        for _ in range(seconds):
            pause = asyncio.create_task(asyncio.sleep(1))
            self._second += 1
            names = [f"{self._second}.{number}" for number in range(RATE)]
            await self.timers.schedule_many(
                NewTimer(name, "h", timedelta(seconds=LEAD + number / RATE), bytes(100))
                for number, name in enumerate(names)
            )
            cancelled = names[::3]
            assert all(await asyncio.gather(*map(self.timers.cancel, cancelled)))
            self._kept |= set(names) - set(cancelled)
            await each()
            await pause

    async def end(self) -> None:
        """Wait for the last fires, and check them all."""
        async with asyncio.timeout(LEAD + 60):
            while len(self.fired) < len(self._kept):  # noqa: ASYNC110 - the load has no event
                await asyncio.sleep(0.1)
        assert self.fired == dict.fromkeys(self._kept, 1)
        assert self.early == self.late == []


@asynccontextmanager
async def loaded(store: Store) -> AsyncGenerator[Load]:
    """Open timers with a load, and check its fires at the end."""
    timers = DurableTimers(store)
    load = Load(timers)
    async with timers:
        yield load
        await load.end()


@pytest.mark.timeout(SECONDS + 600)
async def test_a_snapshot_held_in_postgres_delays_no_fire(database: str) -> None:
    """The reading of a page costs at most three times as much as before the snapshot."""
    asyncpg: Any = import_module("asyncpg")
    reader, holder = await asyncpg.connect(database), await asyncpg.connect(database)
    costs: list[float] = []

    async def note_cost() -> None:
        costs.append(await pages_of_a_read(reader))

    async with loaded(PostgresStore(database, partitions=PARTITIONS)) as load:
        # Rows in space that a vacuum has freed are on more pages than rows in a new table.
        await load.last(2 * LEAD, note_cost)
        await holder.execute("VACUUM aiowheel_timers")
        costs.clear()
        await load.last(LEAD, note_cost)
        usual = median(costs)
        snapshot = holder.transaction(isolation="repeatable_read")
        await snapshot.start()
        assert await holder.fetchval("SELECT count(*) FROM aiowheel_timers")
        await load.last(LEAD, note_cost)
        costs.clear()  # of rows written before the snapshot
        await load.last(SECONDS, note_cost)
        await load.end()
        await snapshot.rollback()
    await reader.close()
    await holder.close()

    assert max(costs) <= 3 * usual


async def pages_of_a_read(connection: Any) -> float:
    """Return the number of database pages that the timers of five seconds take, a partition."""
    now_us = await connection.fetchval("SELECT (extract(epoch FROM now()) * 1000000)::bigint")
    first = now_us + (LEAD - 10) * 1_000_000
    cursors = [Cursor(part, first, 0) for part in range(PARTITIONS)]
    return await pages_read(connection, cursors, first + 5_000_000) / PARTITIONS


@pytest.mark.timeout(SECONDS + 600)
async def test_the_log_of_sqlite_stays_small(tmp_path: Path) -> None:
    """The store resets the log although pages are read and the pending timers are listed."""
    log = tmp_path / "app.db-wal"
    sizes: list[int] = []

    async with loaded(SQLiteStore(tmp_path / "app.db")) as load:

        async def list_timers() -> None:
            assert [row async for row in load.timers.pending()]
            sizes.append(log.stat().st_size)

        await load.last(SECONDS, list_timers)

    assert max(sizes) <= MOST_LOG
