"""One process of `aiowheel bench shared` with broadcaster, a common library for ASGI.

It has the roles of `shared_process` and prints the same lines. A message is the time of its
publish.
"""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from importlib import import_module
from time import monotonic_ns, perf_counter, process_time
from typing import Any

from benchmarks._loops import loops_here, run_on
from benchmarks.workloads.shared_process import TURN, Part, key_of, measured, next_line

# broadcaster's PostgreSQL backend has one connection, which runs one statement at a time.
_AT_ONCE = {"postgres": 1, "redis": 50}


def opened(part: Part) -> Any:
    """Return the broadcast object of this process."""
    backends = import_module(f"broadcaster._backends.{part.store}")
    backend = backends.PostgresBackend if part.store == "postgres" else backends.RedisBackend
    return import_module("broadcaster").Broadcast(backend=backend(part.address))


async def wait(part: Part, broadcast: Any) -> dict[str, float | list[float]]:
    """Receive the messages of all keys until a line arrives; return latencies in milliseconds."""
    latencies: list[float] = []

    async def one(subscriber: Any) -> None:
        while True:
            event = await subscriber.get()
            latencies.append((monotonic_ns() - int(event.message)) / 1e6)

    async with AsyncExitStack() as stack:
        tasks: list[asyncio.Task[None]] = []
        for number in range(part.keys):
            subscription = broadcast.subscribe(key_of(part.first + number))
            subscriber = await stack.enter_async_context(subscription)
            tasks.append(asyncio.create_task(one(subscriber)))
        return await measured(tasks, latencies)


async def publish(part: Part, broadcast: Any) -> dict[str, float | list[float]]:
    """Publish the keys in turn; return the number of publishes and their cost."""
    print("ready", flush=True)
    await next_line()
    cpu, began, made = process_time(), perf_counter(), 0

    async def again() -> None:
        nonlocal made
        while (elapsed := perf_counter() - began) < part.seconds or not made:
            if part.rate and made >= elapsed * part.rate:
                await asyncio.sleep(TURN)
                continue
            key = key_of(part.first + made * 7919 % part.keys)
            made += 1
            await broadcast.publish(key, str(monotonic_ns()))

    await asyncio.gather(*(again() for _ in range(_AT_ONCE[part.store])))
    return {
        "cpu": process_time() - cpu,
        "publishes": made,
        "per_second": made / (perf_counter() - began),
        "writes": made,
    }


async def run(part: Part) -> None:
    """Run the role of this process and print the figures as one line of JSON."""
    async with opened(part) as broadcast:
        figures = await (wait if part.role == "waits" else publish)(part, broadcast)
        print(json.dumps(figures), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    run_on(loops_here()[-1], run(Part(**json.loads(sys.argv[1]))))
