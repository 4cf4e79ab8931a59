"""Running timers, aiowheel's or the loop's own, on a live loop.

Both have the same interface, so one function drives both. The loop gets a turn every so many
operations, like a server's loop; the empty harness takes the same turns.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from time import monotonic_ns, process_time_ns
from typing import Protocol, cast

import aiowheel
from benchmarks._side import Figures

BATCH = 100
# Uniform from 10 to 70 minutes: no timer fires during a run, and the heap and the levels of the
# wheel are as mixed as in practice.
SOONEST, LATEST = 600.0, 4200.0


class Cancellable(Protocol):
    """The result type of both kinds of `call_later`."""

    def cancel(self) -> object:
        """Withdraw the callback."""
        ...


CallLater = Callable[[float, Callable[[], object]], Cancellable]


def nothing() -> None:
    """Do nothing; the callback of the timers."""


@asynccontextmanager
async def open_timers(api: str) -> AsyncGenerator[CallLater, None]:
    """Yield `call_later` of an aiowheel timer ("aiowheel") or of the loop ("loop")."""
    if api == "loop":
        yield asyncio.get_running_loop().call_later
    else:
        async with aiowheel.Timer() as timer:
            yield timer.call_later


async def cpu_per_operation(
    batch: Callable[[int, int], object], operations: int, turn: int = BATCH
) -> float:
    """Return CPU nanoseconds per operation; *batch* runs the operations from start to stop.

    Args:
        batch: Called once per turn of the loop.
        operations: Total number of operations.
        turn: Number of operations in one turn.
    """
    started = process_time_ns()
    for start in range(0, operations, turn):
        batch(start, min(start + turn, operations))
        await asyncio.sleep(0)
    return (process_time_ns() - started) / operations


def uniform_delays(count: int) -> list[float]:
    """Return seeded delays, the same for every side."""
    generator = random.Random(count)
    return [generator.uniform(SOONEST, LATEST) for _ in range(count)]


async def churn(
    api: str, pending: int, operations: int, turn: int = BATCH
) -> AsyncGenerator[Figures, None]:
    """Measure with others pending: arm and cancel; replace a random timer; touch a random timer.

    The figure `clock` is the lower bound of a touch: read a random handle from memory, and read the
    clock. The processor cannot overlap these reads with each other or with the next operation.

    Args:
        api: Whose timers, as in `open_timers`.
        pending: Number of other timers.
        operations: Number of operations of each kind in a round.
        turn: Number of operations in one turn of the loop.
    """
    delays = uniform_delays(operations)
    generator = random.Random(1)
    places = [generator.randrange(pending) for _ in range(operations)]
    async with open_timers(api) as call_later:
        handles = [call_later(delay, nothing) for delay in uniform_delays(pending)]

        def pair_empty(start: int, stop: int) -> None:
            for _ in delays[start:stop]:
                pass

        def pair(start: int, stop: int) -> None:
            for delay in delays[start:stop]:
                call_later(delay, nothing).cancel()

        def replace_empty(start: int, stop: int) -> None:
            for place, _ in zip(places[start:stop], delays[start:stop], strict=True):
                handles[place] = handles[place]

        def replace(start: int, stop: int) -> None:
            for place, delay in zip(places[start:stop], delays[start:stop], strict=True):
                handles[place].cancel()
                handles[place] = call_later(delay, nothing)

        def touch(start: int, stop: int) -> None:
            for place, _ in zip(places[start:stop], delays[start:stop], strict=True):
                handles[place].touch()  # type: ignore[attr-defined]

        def clock(start: int, stop: int) -> None:
            for place, _ in zip(places[start:stop], delays[start:stop], strict=True):
                _handle = handles[place]
                monotonic_ns()

        while True:
            figures = {
                name: await cpu_per_operation(batch, operations, turn)
                for name, batch in {
                    "pair_empty": pair_empty,
                    "pair": pair,
                    "replace_empty": replace_empty,
                    "replace": replace,
                }.items()
            }
            if api == "aiowheel":
                figures["touch_empty"] = figures["clock_empty"] = figures["replace_empty"]
                figures["touch"] = await cpu_per_operation(touch, operations, turn)
                figures["clock"] = await cpu_per_operation(clock, operations, turn)
            yield figures


MakeTimeout = Callable[[float], AbstractAsyncContextManager[object]]


async def block(api: str, pending: int, operations: int) -> AsyncGenerator[Figures, None]:
    """Measure entering and leaving an empty timeout block, with other timers pending."""
    make = cast(MakeTimeout, asyncio.timeout if api == "loop" else aiowheel.timeout)
    call_later: CallLater = (
        asyncio.get_running_loop().call_later if api == "loop" else aiowheel.call_later
    )
    handles = [call_later(delay, nothing) for delay in uniform_delays(pending)]

    async def empty() -> None:
        for _ in range(BATCH):
            pass

    async def enter_and_leave() -> None:
        for _ in range(BATCH):
            async with make(30.0):
                pass

    while True:
        yield {
            "block_empty": await _cpu_per_step(empty, operations),
            "block": await _cpu_per_step(enter_and_leave, operations),
            "pending": len(handles),
        }


async def wait_for(api: str, pending: int, operations: int) -> AsyncGenerator[Figures, None]:
    """Measure waiting for a future that completes on the next turn; the harness awaits it bare."""
    loop = asyncio.get_running_loop()
    call_later: CallLater = loop.call_later if api == "loop" else aiowheel.call_later
    waits = asyncio.wait_for if api == "loop" else aiowheel.wait_for
    handles = [call_later(delay, nothing) for delay in uniform_delays(pending)]

    async def bare() -> None:
        for _ in range(BATCH):
            future: asyncio.Future[None] = loop.create_future()
            loop.call_soon(future.set_result, None)
            await future

    async def bounded() -> None:
        for _ in range(BATCH):
            future: asyncio.Future[None] = loop.create_future()
            loop.call_soon(future.set_result, None)
            await waits(future, 30.0)

    while True:
        yield {
            "wait_for_empty": await _cpu_per_step(bare, operations),
            "wait_for": await _cpu_per_step(bounded, operations),
            "pending": len(handles),
        }


async def _cpu_per_step(batch: Callable[[], object], operations: int) -> float:
    """Like `cpu_per_operation`; *batch* is a coroutine function that runs 100 operations."""
    batches = -(-operations // BATCH)
    started = process_time_ns()
    for _ in range(batches):
        await batch()  # type: ignore[misc]
        await asyncio.sleep(0)
    return (process_time_ns() - started) / (batches * BATCH)
