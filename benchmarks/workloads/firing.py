"""Timers that fire, and their lateness; aiowheel's or the loop's own, on a live loop."""

import asyncio
import random
from array import array
from collections.abc import AsyncGenerator
from time import monotonic, perf_counter, process_time_ns, thread_time

from benchmarks._quantile import quantile
from benchmarks._side import Figures
from benchmarks.workloads.timers import open_timers

_MILLISECONDS = 1e3


async def lateness(api: str, per_second: int, seconds: float) -> AsyncGenerator[Figures, None]:
    """Measure milliseconds from deadline to callback, at *per_second* firings per second.

    Deadlines use the monotonic clock, read immediately before `call_later`, independent of the
    loop's cached time; delays are uniform from 5 to 100 ms.
    """
    generator = random.Random(1)
    async with open_timers(api) as call_later:
        while True:
            total = int(per_second * seconds)
            delays = [generator.uniform(0.005, 0.1) for _ in range(total)]
            late = array("d")

            def arm(delay: float, late: "array[float]" = late) -> None:
                deadline = monotonic() + delay
                call_later(delay, lambda: late.append(monotonic() - deadline))

            cpu = process_time_ns()
            began = monotonic()
            armed = 0
            while armed < total:
                upto = min(int((monotonic() - began) * per_second), total)
                for delay in delays[armed:upto]:
                    arm(delay)
                armed = upto
                await asyncio.sleep(0.001)
            while len(late) < total:  # noqa: ASYNC110 - setting an event has a cost in the firings
                await asyncio.sleep(0.01)
            ordered = sorted(late)
            yield {
                "p50_ms": quantile(ordered, 0.5) * _MILLISECONDS,
                "p99_ms": quantile(ordered, 0.99) * _MILLISECONDS,
                "max_ms": ordered[-1] * _MILLISECONDS,
                "earliest_ms": ordered[0] * _MILLISECONDS,
                "cpu_ns": (process_time_ns() - cpu) / total,
            }


async def burst(api: str, timers: int) -> AsyncGenerator[Figures, None]:
    """Measure many timers due at one moment, beside a task that runs every millisecond.

    The figures are the longest gap between two runs of that task, by wall clock and by CPU clock.
    """
    loop = asyncio.get_running_loop()
    async with open_timers(api) as call_later:
        while True:
            fired = 0

            def fire() -> None:
                nonlocal fired
                fired += 1

            # Arming takes some time, so all delays are computed from one later moment.
            moment = loop.time() + 0.2 + timers * 15e-6
            for _ in range(timers):
                call_later(moment - loop.time(), fire)
            assert fired == 0, "arming took too long"
            await asyncio.sleep(max(moment - loop.time() - 0.05, 0.0))
            cpu = process_time_ns()
            longest_gap = longest_gap_cpu = 0.0
            last, last_cpu = perf_counter(), thread_time()
            while fired < timers:
                await asyncio.sleep(0.001)
                now, now_cpu = perf_counter(), thread_time()
                longest_gap = max(longest_gap, now - last)
                longest_gap_cpu = max(longest_gap_cpu, now_cpu - last_cpu)
                last, last_cpu = now, now_cpu
            yield {
                "longest_gap_ms": longest_gap * _MILLISECONDS,
                "longest_gap_cpu_ms": longest_gap_cpu * _MILLISECONDS,
                "total_ms": (loop.time() - moment) * _MILLISECONDS,
                "cpu_ns": (process_time_ns() - cpu) / timers,
            }


async def fire_all(api: str, pending: int, operations: int) -> AsyncGenerator[Figures, None]:
    """Measure timers that all fire, each arming its successor: none is cancelled."""
    generator = random.Random(1)
    async with open_timers(api) as call_later:
        while True:
            left = operations
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            delays = [generator.uniform(0.001, 0.02) for _ in range(operations + pending)]

            def fire(delays: list[float] = delays, done: "asyncio.Future[None]" = done) -> None:
                nonlocal left
                left -= 1
                if left >= pending:
                    call_later(delays[left], fire)
                elif left == 0:
                    done.set_result(None)

            cpu = process_time_ns()
            for delay in delays[:pending]:
                call_later(delay, fire)
            await done
            yield {"fire": (process_time_ns() - cpu) / operations}
