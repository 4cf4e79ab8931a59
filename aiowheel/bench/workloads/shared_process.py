"""One process of `aiowheel bench shared`: it waits for counters, or publishes them. Rank 5.

The value of a counter is the time of its publish on the monotonic clock, which all processes of a
machine share, so a wait knows how late it was woken up.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic_ns, perf_counter, process_time

from aiowheel import Purgatory
from aiowheel.bench._loops import loop_factory, loops_here
from aiowheel.bench.workloads.firing import quantile
from aiowheel.shared import (
    CounterStore,
    PostgresCounters,
    RedisCounters,
    SharedCounters,
    SqliteCounters,
)

STORES: Mapping[str, Callable[[str], CounterStore]] = {
    "sqlite": SqliteCounters,
    "postgres": PostgresCounters,
    "redis": RedisCounters,
}
TURN = 0.001  # seconds between two looks at what is due
SAMPLE = 1_000  # quantiles that stand for all latencies of a process
_AT_ONCE = 1_000  # publishes under way, where as many as possible are made


@dataclass(frozen=True, slots=True)
class Part:
    """What the process does.

    Attributes:
        role: "waits" or "publishes".
        store: A key of `STORES`.
        address: Of the store.
        first: The number of its first key.
        keys: Its keys; a publisher chooses one after the other.
        rate: Publishes per second; 0: as many as possible.
        seconds: How long it publishes.
    """

    role: str
    store: str
    address: str
    first: int
    keys: int
    rate: float
    seconds: float


def opened(part: Part) -> CounterStore:
    """The store of this process."""
    return STORES[part.store](part.address)


def key_of(number: int) -> str:
    """The key with that number."""
    return f"bench {number}"


async def wait(part: Part, shared: SharedCounters) -> dict[str, float | list[float]]:
    """Wait for every key again and again until a line comes; the latencies in milliseconds."""
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
    """Measure what *tasks* add to *latencies* between two lines of input, then end them."""
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
    """Publish one key after the other; how many, and what they cost."""
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
        # One at least, also where the machine stood still for all of the time.
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
    """Wait for a line on the standard input."""
    # In a thread: the loop goes on meanwhile.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def run(part: Part) -> None:
    """Play the part, and report the figures as one line of JSON."""
    async with (
        Purgatory("bench") as purgatory,
        SharedCounters(purgatory, opened(part)) as shared,
    ):
        figures = await (wait if part.role == "waits" else publish)(part, shared)
        print(json.dumps(figures), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory(loops_here()[-1])) as runner:
        runner.run(run(Part(**json.loads(sys.argv[1]))))
