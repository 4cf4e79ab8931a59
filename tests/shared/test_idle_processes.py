"""Idle keys over real processes, of which one is killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from aiowheel.shared import (
    CounterStore,
    PostgresCounters,
    RedisCounters,
    SharedIdle,
    SqliteCounters,
)

from .servers import PATIENCE, holds

pytestmark = [pytest.mark.one_build, pytest.mark.realtime, pytest.mark.slow]

STORES = {"sqlite": SqliteCounters, "postgres": PostgresCounters, "redis": RedisCounters}
TIMEOUT = 1.0
stores = pytest.mark.parametrize(
    "store",
    [
        "sqlite",
        *(pytest.param(each, marks=pytest.mark.thorough) for each in ("postgres", "redis")),
    ],
)


class Process:
    """A process of `idle_worker.py`, and the keys that it has printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.named: list[str] = []
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, store: str, address: str, lease: float) -> Process:
        """Start a process; return when its `SharedIdle` is open."""
        process = cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                Path(__file__).with_name("idle_worker.py"),
                *(store, address, str(TIMEOUT), str(lease)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        )
        await holds(lambda: process.named or process._reading.done())
        assert process.named.pop(0) == "ready"
        return process

    async def touch(self, *keys: str) -> None:
        """Make the process touch keys."""
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{key}\n" for key in keys).encode())
        await self._process.stdin.drain()

    async def kill(self) -> None:
        """Kill the process, and read its output."""
        if self._process.returncode is None:
            self._process.kill()
        async with asyncio.timeout(PATIENCE):
            await self._process.wait()
            await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.named.append(line.decode().rstrip("\n"))


async def listed(store: CounterStore) -> list[str]:
    """Return the names of the counters in the store."""
    keys: list[str] = []
    after: str | None = ""
    while after is not None:
        page = await store.scan("idle:", after)
        keys += (counter.split(":", 2)[2] for counter in page.values)
        after = page.after
    return keys


@pytest.fixture
def address(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The address of an empty store."""
    if store == "sqlite":
        return str(tmp_path / "counters.db")
    if store == "postgres":
        return str(request.getfixturevalue("postgres_server").dsn)
    return str(request.getfixturevalue("redis_server").address)


@stores
async def test_the_keys_of_a_killed_process_fall_idle_in_another(store: str, address: str) -> None:
    """The keys that the process touched and those that it owned fall idle in the other one."""
    one, two = await asyncio.gather(*(Process.start(store, address, 1) for _ in range(2)))
    try:
        own, others = [f"one {number}" for number in range(200)], [f"two {n}" for n in range(200)]
        await one.touch(*own)
        await two.touch(*others)
        counters: CounterStore = STORES[store](address)
        async with asyncio.timeout(PATIENCE):
            # On a slow machine, a key may be idle already, and its counter is then removed.
            while len({*await listed(counters), *one.named, *two.named}) < 400:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await counters.aclose()
        await one.kill()
        await holds(lambda: {*one.named, *two.named} >= {*own, *others})
        assert set(two.named) >= set(own) - set(one.named)
    finally:
        await one.kill()
        await two.kill()


@stores
async def test_each_key_falls_idle_once_in_the_process_that_owns_it(
    store: str, address: str
) -> None:
    """One process touches all keys, both own some of them, and the leases are long."""
    named: list[str] = []
    other = await Process.start(store, address, 300)
    try:
        counters: CounterStore = STORES[store](address)
        async with SharedIdle(counters, TIMEOUT, named.append, lease=300) as idle:
            await holds(lambda: 20 < idle.statistics().partitions < 44)
            keys = [f"k{number}" for number in range(300)]
            for key in keys:
                idle.touch(key)
            await holds(lambda: {*named, *other.named} == set(keys))
            assert named
            assert other.named
            assert len(named) + len(other.named) == 300
    finally:
        await other.kill()
