"""Shared counters over processes, and raw writes of the same store."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing
from importlib import import_module
from time import perf_counter
from typing import Any

from benchmarks._clients import Clients, run_clients
from benchmarks._quantile import quantile
from benchmarks._side import Figures
from benchmarks.workloads.shared_process import Part

_RAW_WRITES = 5_000
OURS, BROADCASTER = "shared_process", "broadcaster_process"
_SETTLE = 0.5  # seconds for the last wake-ups to arrive


async def raw_write(*, store: str, address: str) -> AsyncGenerator[Figures, None]:
    """Measure single writes of one row or field by the plain client."""
    async with AsyncExitStack() as stack:
        write = await _raw_writer(store, address, stack)
        while True:
            latencies: list[float] = []
            began = perf_counter()
            for number in range(_RAW_WRITES):
                before = perf_counter()
                await write(number)
                latencies.append(perf_counter() - before)
            seconds = perf_counter() - began
            yield {
                "p50_ms": quantile(sorted(latencies), 0.5) * 1e3,
                "per_second": _RAW_WRITES / seconds,
            }


async def _raw_writer(
    store: str, address: str, stack: AsyncExitStack
) -> Callable[[int], Awaitable[object]]:
    if store == "sqlite":
        connection = sqlite3.connect(address, isolation_level=None, check_same_thread=False)
        file = stack.enter_context(closing(connection))
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = NORMAL")
        file.execute("CREATE TABLE IF NOT EXISTS raw (key TEXT PRIMARY KEY, value INTEGER)")

        # In a thread, as asyncio programs use SQLite.
        pool = stack.enter_context(ThreadPoolExecutor(1))
        loop = asyncio.get_running_loop()
        statement = "INSERT OR REPLACE INTO raw VALUES ('k', ?)"

        async def into_sqlite(number: int) -> object:
            return await loop.run_in_executor(pool, file.execute, statement, (number,))

        return into_sqlite
    if store == "postgres":
        asyncpg: Any = import_module("asyncpg")
        connection = await asyncpg.connect(address)
        stack.push_async_callback(connection.close)
        await connection.execute(
            "CREATE UNLOGGED TABLE IF NOT EXISTS raw (key text PRIMARY KEY, value bigint)"
        )

        async def into_postgres(number: int) -> object:
            return await connection.execute(
                "INSERT INTO raw VALUES ('k', $1) ON CONFLICT (key) DO UPDATE SET value = $1",
                number,
            )

        return into_postgres
    redis: Any = import_module("redis.asyncio")
    client = redis.Redis.from_url(address)
    stack.push_async_callback(client.aclose)

    async def into_redis(number: int) -> object:
        return await client.hset("raw", "k", number)

    return into_redis


async def wakes(
    *,
    store: str,
    address: str,
    workers: int,
    waits: int,
    rate: float,
    seconds: float,
    program: str = OURS,
) -> AsyncGenerator[Figures, None]:
    """Measure waiting processes, each with its own keys, and one that publishes at *rate*."""
    parts = [
        Part("waits", store, address, place * waits, waits, 0, seconds) for place in range(workers)
    ]
    publisher = Part("publishes", store, address, 0, workers * waits, rate, seconds)
    while True:
        async with AsyncExitStack() as stack:
            waiting = [await _started(stack, part, program) for part in parts]
            (publishing,) = [await _started(stack, publisher, program)]
            for each in waiting:
                each.start_stage()
                await each.read_line()
            publishing.start_stage()
            published = json.loads(await publishing.read_line())
            await asyncio.sleep(_SETTLE)
            found: list[dict[str, Any]] = []
            for each in waiting:
                each.start_stage()
                found.append(json.loads(await each.read_line()))
        latencies = sorted(latency for each in found for latency in each["latencies"])
        woken = max(1, sum(each["wakes"] for each in found))
        yield {
            "p50_ms": quantile(latencies, 0.5) if latencies else 0.0,
            "p99_ms": quantile(latencies, 0.99) if latencies else 0.0,
            "reached_percent": published["publishes"] / (rate * seconds) * 100,
            "writes_a_publish": published["writes"] / published["publishes"],
            "wake_cpu_us": sum(each["cpu"] for each in found) / woken * 1e6,
            "publish_cpu_us": published["cpu"] / published["publishes"] * 1e6,
        }


async def most(
    *,
    store: str,
    address: str,
    publishers: int,
    waits: int,
    seconds: float,
    program: str = OURS,
) -> AsyncGenerator[Figures, None]:
    """Measure the most publishes of *publishers* processes while one process waits for keys."""
    parts = [
        Part("publishes", store, address, 0, max(waits, 1_000), 0, seconds)
        for _ in range(publishers)
    ]
    while True:
        async with AsyncExitStack() as stack:
            await _started(stack, Part("waits", store, address, 0, waits, 0, seconds), program)
            publishing = [await _started(stack, part, program) for part in parts]
            for each in publishing:
                each.start_stage()
            found = [json.loads(await each.read_line()) for each in publishing]
        yield {"per_second": sum(each["per_second"] for each in found)}


async def idle(
    *, store: str, address: str, waits: int, seconds: float
) -> AsyncGenerator[Figures, None]:
    """Measure one process whose waits do not complete."""
    while True:
        async with AsyncExitStack() as stack:
            part = Part("waits", store, address, 0, waits, 0, seconds)
            waiting = await _started(stack, part)
            waiting.start_stage()
            await waiting.read_line()
            await asyncio.sleep(seconds)
            waiting.start_stage()
            found = json.loads(await waiting.read_line())
        yield {"cpu_percent": found["cpu"] / seconds * 100}


async def _started(stack: AsyncExitStack, part: Part, program: str = OURS) -> Clients:
    clients = await stack.enter_async_context(run_clients(program, part))
    await clients.read_line()  # the process is ready
    return clients
