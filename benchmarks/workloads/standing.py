"""The standing cost of pending timers: memory, stalls, wake-ups."""

import asyncio
import random
import resource
import sys
from collections.abc import AsyncGenerator
from time import perf_counter, process_time, thread_time

from benchmarks._memory import resident_bytes
from benchmarks._side import Figures
from benchmarks.workloads.timers import BATCH, nothing, open_timers, uniform_delays

_MILLISECONDS = 1e3


class Connection:
    """The owner of a timeout."""

    def on_timeout(self) -> None:
        """Handle the timeout."""


async def memory(api: str, pending: int) -> AsyncGenerator[Figures, None]:
    """Measure bytes per pending timer, with its bound method and its handle, without the list."""
    connection = Connection()
    async with open_timers(api) as call_later:
        while True:
            handles: list[object] = [None] * pending
            before = resident_bytes()
            for place in range(pending):
                handles[place] = call_later(3600.0, connection.on_timeout)
            after = resident_bytes()
            while handles:
                handles.pop().cancel()  # type: ignore[attr-defined]
            # The loop removes its own timers from the heap on a later turn.
            call_later(0.001, nothing)
            await asyncio.sleep(0.01)
            yield {
                "bytes_each": (after - before) / pending,
                "kept_percent": 100 * (resident_bytes() - before) / (after - before),
            }


async def stall(api: str, pending: int, replaced: int) -> AsyncGenerator[Figures, None]:
    """Measure the longest turn of the loop while random timers are replaced, 100 per turn.

    By wall clock and by CPU clock: a stall that only the wall clock shows is caused by the machine.
    """
    delays = uniform_delays(replaced)
    generator = random.Random(1)
    places = [generator.randrange(pending) for _ in range(replaced)]
    async with open_timers(api) as call_later:
        handles = [call_later(delay, nothing) for delay in uniform_delays(pending)]
        await asyncio.sleep(0.01)
        while True:
            longest = longest_cpu = 0.0
            wall, cpu = perf_counter(), thread_time()
            for start in range(0, replaced, BATCH):
                stop = start + BATCH
                for place, delay in zip(places[start:stop], delays[start:stop], strict=True):
                    handles[place].cancel()
                    handles[place] = call_later(delay, nothing)
                await asyncio.sleep(0)
                now, cpu_now = perf_counter(), thread_time()
                longest = max(longest, now - wall)
                longest_cpu = max(longest_cpu, cpu_now - cpu)
                wall, cpu = now, cpu_now
            yield {
                "longest_ms": longest * _MILLISECONDS,
                "longest_cpu_ms": longest_cpu * _MILLISECONDS,
            }


async def idle(api: str, pending: int, seconds: float) -> AsyncGenerator[Figures, None]:
    """Measure wake-ups and CPU time per second with timers due in an hour.

    A wake-up is a voluntary context switch of the process; the one that ends the wait is
    subtracted.
    """
    async with open_timers(api) as call_later:
        handles = [call_later(3600.0, nothing) for _ in range(pending)]
        await asyncio.sleep(0.05)
        while True:
            switches = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
            cpu = process_time()
            await asyncio.sleep(seconds)
            spent = process_time() - cpu
            switches = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - switches
            yield {
                "wakeups_per_second": max(switches - 1, 0) / seconds,
                "cpu_ms_per_second": spent / seconds * _MILLISECONDS,
                "pending": len(handles),
            }


async def allocation(pending: int, operations: int) -> AsyncGenerator[Figures, None]:
    """Count memory blocks that touching random timers leaves allocated."""
    generator = random.Random(1)
    async with open_timers("aiowheel") as call_later:
        handles = [call_later(delay, nothing) for delay in uniform_delays(pending)]
        places = [generator.randrange(pending) for _ in range(operations)]
        while True:
            before = sys.getallocatedblocks()
            for place in places:
                handles[place].touch()  # type: ignore[attr-defined]
            yield {"blocks": sys.getallocatedblocks() - before}
