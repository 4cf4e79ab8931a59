"""One process of `aiowheel bench shared`, which waits for counters or publishes them.

The value of a counter is the time of its publish on the monotonic clock, which all processes of a
machine share. So a wait can compute its latency.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic_ns, perf_counter, process_time

from aiowheel import Purgatory
from aiowheel.shared import (
    CounterStore,
    PostgresCounters,
    RedisCounters,
    SharedCounters,
    SqliteCounters,
)
from benchmarks._loops import loops_here, run_on
from benchmarks._quantile import quantile

STORES: Mapping[str, Callable[[str], CounterStore]] = {
    "sqlite": SqliteCounters,
    "postgres": PostgresCounters,
    "redis": RedisCounters,
}
TURN = 0.001  # seconds between two checks for due publishes
SAMPLE = 1_000  # number of quantiles that represent the latencies of a process
_AT_ONCE = 1_000  # concurrent publishes when measuring the maximum


@dataclass(frozen=True, slots=True)
class Part:
    """The role of the process.

    Attributes:
        role: "waits" or "publishes".
        store: A key of `STORES`.
        address: The address of the store.
        first: The number of its first key.
        keys: Number of its keys; a publisher uses them in turn.
        rate: Publishes per second; 0 for as many as possible.
        seconds: Duration of publishing.
    """

    role: str
    store: str
    address: str
    first: int
    keys: int
    rate: float
    seconds: float


def opened(part: Part) -> CounterStore:
    """Return the store of this process."""
    return STORES[part.store](part.address)


def key_of(number: int) -> str:
    """Return the key with the given number."""
    return f"bench {number}"


async def wait(part: Part, shared: SharedCounters) -> dict[str, float | list[float]]:
    """Wait for every key repeatedly until a line arrives; return latencies in milliseconds."""
    latencies: list[float] = []

    async def one(key: str) -> None:
        seen = await shared.value(key) or 0
        while True:
            await shared.wait_until({key: seen + 1}, None)
            woken = monotonic_ns()
            seen = await shared.value(key) or 0
            latencies.append((woken - seen) / 1e6)

    names = [key_of(part.first + number) for number in range(part.keys)]
    tasks = [asyncio.create_task(one(key)) for key in names]
    while shared.statistics().waiting < part.keys:  # noqa: ASYNC110 - the tasks set no event
        await asyncio.sleep(TURN)
    return await measured(tasks, latencies)


async def measured(
    tasks: Sequence[asyncio.Task[None]], latencies: list[float]
) -> dict[str, float | list[float]]:
    """Measure the *latencies* that *tasks* add between two lines of input, then end the tasks."""
    print("ready", flush=True)
    await next_line()
    latencies.clear()
    cpu = process_time()
    print("began", flush=True)
    await next_line()
    cpu = process_time() - cpu
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    ordered = sorted(latencies)
    sample = [quantile(ordered, place / SAMPLE) for place in range(SAMPLE)] if ordered else []
    return {"cpu": cpu, "latencies": sample, "wakes": len(latencies)}


async def publish(part: Part, shared: SharedCounters) -> dict[str, float | list[float]]:
    """Publish the keys in turn; return the number of publishes and their cost."""
    print("ready", flush=True)
    await next_line()
    before = shared.statistics()
    cpu, began, made = process_time(), perf_counter(), 0

    async def one() -> None:
        nonlocal made
        key = key_of(part.first + made * 7919 % part.keys)
        made += 1
        await shared.advance(key, monotonic_ns())

    if part.rate:
        tasks: set[asyncio.Task[None]] = set()
        # At least one, even if the machine stalls for the whole duration.
        while (elapsed := perf_counter() - began) < part.seconds or not made:
            for _ in range(int(elapsed * part.rate) - made - len(tasks)):
                task = asyncio.create_task(one())
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await asyncio.sleep(TURN)
        await asyncio.gather(*tasks)
    else:

        async def again() -> None:
            while perf_counter() - began < part.seconds:
                await one()

        await asyncio.gather(*(again() for _ in range(_AT_ONCE)))
    seconds = perf_counter() - began
    statistics = shared.statistics()
    return {
        "cpu": process_time() - cpu,
        "publishes": made,
        "per_second": made / seconds,
        "writes": statistics.writes - before.writes,
    }


async def next_line() -> None:
    """Wait for a line on standard input."""
    # In a thread, so that the loop keeps running.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def run(part: Part) -> None:
    """Run the role of this process and print the figures as one line of JSON."""
    async with (
        Purgatory("bench") as purgatory,
        SharedCounters(purgatory, opened(part)) as shared,
    ):
        figures = await (wait if part.role == "waits" else publish)(part, shared)
        print(json.dumps(figures), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    run_on(loops_here()[-1], run(Part(**json.loads(sys.argv[1]))))
