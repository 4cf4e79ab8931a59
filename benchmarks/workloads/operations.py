"""Single purgatory calls with many operations pending."""

import asyncio
import gc
import random
import sys
from collections.abc import AsyncGenerator
from time import process_time_ns

from aiowheel import DelayedOperation, Purgatory, Timer
from benchmarks._memory import resident_bytes
from benchmarks._side import Figures
from benchmarks.workloads.contenders import Request
from benchmarks.workloads.timers import BATCH, cpu_per_operation, uniform_delays

HOUR = 3600.0


def fresh(timeout: float) -> Request:
    """Return a request that is not ready."""
    request = Request(timeout)
    request.ready = False
    return request


async def check(keys: int, pending: int, operations: int) -> AsyncGenerator[Figures, None]:
    """Measure creating an operation, watching its keys, and completing it by a check."""
    async with Timer() as timer, Purgatory("bench", timer=timer) as purgatory:
        watch, complete = purgatory.try_complete_else_watch, purgatory.check_and_complete
        for place, delay in enumerate(uniform_delays(pending)):
            watch(fresh(delay), [("waiting", place, which) for which in range(keys)])
        delays = uniform_delays(operations)

        def fresh_keys(start: int, stop: int) -> list[list[tuple[str, int, int]]]:
            return [
                [("key", place, which) for which in range(keys)] for place in range(start, stop)
            ]

        def empty(start: int, stop: int) -> None:
            for _, _ in zip(delays[start:stop], fresh_keys(start, stop), strict=True):
                pass

        def enqueue_and_complete(start: int, stop: int) -> None:
            for delay, names in zip(delays[start:stop], fresh_keys(start, stop), strict=True):
                request = Request(delay)
                request.ready = False
                watch(request, names)
                request.ready = True
                complete(names[0])

        while True:
            yield {
                "check_empty": await cpu_per_operation(empty, operations),
                "check": await cpu_per_operation(enqueue_and_complete, operations),
            }
            assert len(purgatory) == pending


async def round_trip(kind: str, operations: int) -> AsyncGenerator[Figures, None]:
    """Measure one task that awaits a result of a callback on the loop's next turn.

    Args:
        kind: The awaited object: "watch", completed by a check; or a bare "future".
        operations: Number of operations in a round.
    """
    loop = asyncio.get_running_loop()
    async with Timer() as timer, Purgatory("bench", timer=timer) as purgatory:
        keys = [("key", 1)]

        def complete(request: Request) -> None:
            request.ready = True
            purgatory.check_and_complete(keys[0])

        while True:
            started = process_time_ns()
            if kind == "watch":
                for _ in range(operations):
                    request = Request(HOUR)
                    request.ready = False
                    loop.call_soon(complete, request)
                    await purgatory.watch(request, keys)
            else:
                for _ in range(operations):
                    future: asyncio.Future[None] = loop.create_future()
                    loop.call_soon(future.set_result, None)
                    await future
            yield {"awaited": (process_time_ns() - started) / operations}


async def awaited(kind: str, operations: int, *, standing: bool) -> AsyncGenerator[Figures, None]:
    """Measure 100 concurrent tasks that each await one object; all complete, then all wake up.

    Args:
        kind: As in `round_trip`.
        operations: Number of operations in a round.
        standing: Whether the tasks are reused, or created for each operation.
    """
    loop = asyncio.get_running_loop()
    async with Timer() as timer, Purgatory("bench", timer=timer) as purgatory:
        requests: list[Request] = [fresh(HOUR)] * BATCH
        futures: list[asyncio.Future[None]] = [loop.create_future()] * BATCH
        keys = [[("key", place)] for place in range(BATCH)]
        repeats = operations // BATCH

        async def watch_one(place: int) -> None:
            request = requests[place] = Request(HOUR)
            request.ready = False
            await purgatory.watch(request, keys[place])

        async def await_one(place: int) -> None:
            future = futures[place] = loop.create_future()
            await future

        one = watch_one if kind == "watch" else await_one

        async def stand(place: int) -> None:
            for _ in range(repeats):
                await one(place)

        while True:
            tasks: list[asyncio.Task[None]] = []
            started = process_time_ns()
            for number in range(repeats):
                if not standing or number == 0:
                    run = stand if standing else one
                    tasks = [loop.create_task(run(place)) for place in range(BATCH)]
                    await asyncio.sleep(0)
                if kind == "watch":
                    for place in range(BATCH):
                        requests[place].ready = True
                        purgatory.check_and_complete(keys[place][0])
                else:
                    for future in futures:
                        future.set_result(None)
                await asyncio.sleep(0)
            spent = process_time_ns() - started
            await asyncio.gather(*tasks)
            yield {"awaited": spent / (repeats * BATCH)}


async def advance(waiters: int, operations: int) -> AsyncGenerator[Figures, None]:
    """Measure the completion of one of many waiters of a key: by `advance`, and by a check."""
    async with Timer() as timer, Purgatory("bench", timer=timer) as purgatory:
        level = 0
        waits = [purgatory.wait_until({"key": level + n}, HOUR) for n in range(1, waiters + 1)]
        scanned = [fresh(HOUR) for _ in range(waiters)]
        for request in scanned:
            purgatory.try_complete_else_watch(request, ["scanned"])
        scans = max(1, min(operations, 200_000 // waiters))
        while True:
            spent = 0
            for _ in range(operations // BATCH):
                upcoming = range(level + 1, level + BATCH + 1)
                started = process_time_ns()
                for value in upcoming:
                    purgatory.advance("key", value)
                spent += process_time_ns() - started
                level += BATCH
                del waits[:BATCH]
                waits += [
                    purgatory.wait_until({"key": level + waiters - n}, HOUR)
                    for n in reversed(range(BATCH))
                ]
                await asyncio.sleep(0)
            scanning = 0
            for _ in range(scans):
                request = fresh(HOUR)
                purgatory.try_complete_else_watch(request, ["scanned"])
                request.ready = True
                started = process_time_ns()
                purgatory.check_and_complete("scanned")
                scanning += process_time_ns() - started
            yield {
                "advance": spent / (operations // BATCH * BATCH),
                "scan": scanning / scans,
            }
            assert len(waits) == waiters


async def memory(operations: int) -> AsyncGenerator[Figures, None]:
    """Measure the memory left after completing operations on three keys in random order."""
    generator = random.Random(1)
    async with Timer() as timer, Purgatory("bench", timer=timer) as purgatory:
        while True:
            order = list(range(operations))
            generator.shuffle(order)
            over = fresh(HOUR)
            requests = [over] * operations
            names = max(operations // 10, 3)
            before, blocks = resident_bytes(), sys.getallocatedblocks()
            for place in range(operations):
                requests[place] = fresh(HOUR)
                keys = [(place + which) % names for which in (0, 1, 2)]
                purgatory.try_complete_else_watch(requests[place], keys)
            full = resident_bytes()
            for place in order:
                requests[place].force_complete()
                requests[place] = over
            after = resident_bytes()
            yield {
                "bytes_each": (full - before) / operations,
                "kept_percent": 100 * (after - before) / (full - before),
                "blocks_kept": sys.getallocatedblocks() - blocks,
            }


class Payload:
    """A megabyte whose lifetime is counted; it is never written to and so uses no memory."""

    alive: int = 0

    def __init__(self) -> None:
        self.content: bytes = bytes(1 << 20)
        Payload.alive += 1

    def __del__(self) -> None:
        Payload.alive -= 1


class Delivery(DelayedOperation[None]):
    """An operation that holds its payload until it completes."""

    payload: Payload | None = None
    open = False

    def try_complete(self) -> bool:
        """Complete if the common event has happened."""
        return Delivery.open


def loaded() -> Delivery:
    """Return a delivery with its own payload."""
    delivery = Delivery(HOUR)
    delivery.payload = Payload()
    return delivery


async def payloads(operations: int) -> AsyncGenerator[Figures, None]:
    """Count payloads that survive their operations, which complete through one of three keys.

    The collector is off, so that reference counts alone must free the payloads.
    """
    async with Timer() as timer, Purgatory("bench", timer=timer) as purgatory:
        while True:
            gc.collect()
            gc.disable()
            Delivery.open = False
            for place in range(operations):
                purgatory.try_complete_else_watch(loaded(), ["one", "two", ("own", place)])
            held = Payload.alive
            Delivery.open = True
            completed = purgatory.check_and_complete("one")
            gc.enable()
            yield {"held": held, "completed": completed, "left": Payload.alive}
