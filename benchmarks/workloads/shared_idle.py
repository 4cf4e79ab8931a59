"""Idle keys of two instances on one store: touches, a takeover, and the idle events.

Both instances run in one process, each with its own store object, so that one clock measures them.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from time import perf_counter, process_time

from aiowheel.shared import SharedIdle
from benchmarks._side import Figures
from benchmarks.workloads.shared_process import STORES

_SLICE = 1_000  # touches in one turn of the loop
_LEAST = 2.0  # minimum timeout in seconds
_KEYS_A_SECOND = 5_000  # lower bound of a store's speed; the timeout must exceed the writing time
_AGAIN = 4  # number of touches of each key after the first one
_LOOK = 0.01
_PATIENCE = 60.0


async def keys(*, store: str, address: str, keys: int) -> AsyncGenerator[Figures, None]:
    """Touch *keys* keys at both instances, close one of them, and wait until all keys are idle."""
    number = 0
    while True:
        number += 1
        yield await _round(store, address, keys, f"round_{number}")


async def _round(store: str, address: str, keys: int, name: str) -> Figures:
    """Run one round on its own keys."""
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
        # The time between two writes of a key is half a slack, an eighth of the timeout.
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
    """Touch every key once, alternating between the instances."""
    for start in range(0, keys, _SLICE):
        for number in range(start, min(start + _SLICE, keys)):
            processes[number % len(processes)].touch(f"key {number}")
        await asyncio.sleep(0)


async def _holds(condition: Callable[[], bool], seconds: float = 0.0) -> None:
    """Wait until the condition holds or the time is up; the figures then show the failure."""
    end = perf_counter() + seconds + _PATIENCE
    while not condition() and perf_counter() < end:  # noqa: ASYNC110 - the condition has no event
        await asyncio.sleep(_LOOK)
