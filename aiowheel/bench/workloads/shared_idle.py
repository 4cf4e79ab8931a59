"""Idle keys of two processes on one store: touches, a takeover, the end of all silences. Rank 5.

Both live in one process, with a store object of their own each, so that one clock times them.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from time import perf_counter, process_time

from aiowheel.bench._side import Figures
from aiowheel.bench.workloads.shared_process import STORES
from aiowheel.shared import SharedIdle

_SLICE = 1_000  # touches in one turn of the loop
_LEAST = 2.0  # seconds of the timeout
_KEYS_A_SECOND = 5_000  # that a store takes at least; the timeout must outlast the writes
_AGAIN = 4  # times that each key is touched after the first one
_LOOK = 0.01
_PATIENCE = 60.0


async def keys(*, store: str, address: str, keys: int) -> AsyncGenerator[Figures, None]:
    """Touch *keys* keys at both processes, close one of them, and let all fall idle."""
    number = 0
    while True:
        number += 1
        yield await _round(store, address, keys, f"round_{number}")


async def _round(store: str, address: str, keys: int, name: str) -> Figures:
    """One round, on keys of its own."""
    timeout = max(_LEAST, keys / _KEYS_A_SECOND)
    idle: Counter[str] = Counter()
    one, two = (
        SharedIdle(STORES[store](address), timeout, lambda key: idle.update([key]), name=name)
        for _ in range(2)
    )
    async with two, one:
        await _holds(lambda: one.statistics().partitions == 32)
        began, cpu = perf_counter(), process_time()
        await _touch(keys, one, two)
        cpu = process_time() - cpu
        await _holds(lambda: one.statistics().keys + two.statistics().keys + len(idle) >= keys)
        stored = perf_counter() - began
        for _ in range(_AGAIN):
            await _touch(keys, one, two)
        touched = perf_counter()
        await one.aclose()
        values = one.statistics().values + two.statistics().values
        closed = perf_counter()
        # Half a slack of a quarter of the timeout passes between two writes of a key.
        allowed = keys * ((closed - began) / (timeout / 8) + 2)
        await _holds(lambda: two.statistics().keys + len(idle) >= keys)
        took = perf_counter() - closed
        await _holds(lambda: len(idle) >= keys, timeout * 2)
        late = perf_counter() - touched - timeout
    return {
        "touch_cpu_us": cpu / keys * 1e6,
        "stored_s": stored,
        "values_a_touch": values / keys / (1 + _AGAIN),
        "values_of_allowed": values / allowed,
        "takeover_s": took,
        "late_percent": late / timeout * 100,
        "lost": keys - len(idle),
        "twice": sum(count > 1 for count in idle.values()),
    }


async def _touch(keys: int, *processes: SharedIdle) -> None:
    """Touch every key once, the next one at the next process."""
    for start in range(0, keys, _SLICE):
        for number in range(start, min(start + _SLICE, keys)):
            processes[number % len(processes)].touch(f"key {number}")
        await asyncio.sleep(0)


async def _holds(condition: Callable[[], bool], seconds: float = 0.0) -> None:
    """Wait until the condition holds, or for too long: the figures then say so."""
    end = perf_counter() + seconds + _PATIENCE
    while not condition() and perf_counter() < end:  # noqa: ASYNC110 - it sets no event
        await asyncio.sleep(_LOOK)
