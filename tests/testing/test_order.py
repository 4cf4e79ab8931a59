"""The order of a virtual loop's callbacks is the same in each run, and a seed shuffles it."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

import aiowheel
from aiowheel.testing import VirtualClockEventLoop

pytestmark = pytest.mark.one_build

Sleep = Callable[[float], Awaitable[None]]
Trace = list[tuple[float, int]]


def order_within_an_instant(seed: int | None, timers: int = 20) -> list[int]:
    """Return the order in which timers due at one time run."""
    order: list[int] = []
    loop = VirtualClockEventLoop(seed=seed)
    for number in range(timers):
        loop.call_at(1.0, order.append, number)
    loop.run_until_complete(loop.advance(1))
    loop.close()
    return order


def trace_of_sleepers(sleep: Sleep, seed: int | None) -> Trace:
    """Return time and number of each wake-up of 10,000 sleepers, many at the same instant."""
    delays = random.Random(45)
    trace: Trace = []

    async def sleeper(number: int) -> None:
        loop = asyncio.get_running_loop()
        await sleep(delays.randrange(1_000) / 1000)
        trace.append((loop.time(), number))

    async def all_of_them() -> None:
        await asyncio.gather(*(sleeper(number) for number in range(10_000)))

    with asyncio.Runner(loop_factory=lambda: VirtualClockEventLoop(seed=seed)) as runner:
        runner.run(all_of_them())
    return trace


def test_without_a_seed_timers_of_one_instant_run_in_the_order_armed() -> None:
    """The heap of asyncio does not promise this order."""
    assert order_within_an_instant(None) == list(range(20))


def test_a_seed_shuffles_timers_of_one_instant() -> None:
    """Different seeds give different orders; the same seed gives the same order."""
    orders = [order_within_an_instant(seed) for seed in range(5)]

    assert len({tuple(order) for order in orders}) == 5
    assert [order_within_an_instant(seed) for seed in range(5)] == orders
    assert all(sorted(order) == list(range(20)) for order in orders)


def test_a_seed_shuffles_nothing_across_instants() -> None:
    """A timer that is due earlier runs earlier."""
    order: list[float] = []
    loop = VirtualClockEventLoop(seed=1)
    for when in (0.3, 0.1, 0.2):
        loop.call_at(when, order.append, when)
    loop.run_until_complete(loop.advance(1))
    loop.close()

    assert order == [0.1, 0.2, 0.3]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("sleep", [asyncio.sleep, aiowheel.sleep], ids=["loop", "wheel"])
def test_ten_thousand_random_sleeps_leave_the_same_trace_twice(
    sleep: Sleep, seed: int | None
) -> None:
    """Two runs have exactly the same trace."""
    trace = trace_of_sleepers(sleep, seed)

    assert len(trace) == 10_000
    assert trace_of_sleepers(sleep, seed) == trace


@pytest.mark.virtual_time(seed=range(4))
async def test_code_that_does_not_depend_on_order_passes_with_every_seed(
    request: pytest.FixtureRequest,
) -> None:
    """A mark with several seeds runs the test once for each seed."""
    results = await asyncio.gather(*(asyncio.sleep(1, number) for number in range(4)))

    assert results == [0, 1, 2, 3]
    assert "[seed=" in request.node.name


async def count_down(trace: list[str]) -> None:
    """Add events that are some milliseconds apart to *trace*."""
    loop = asyncio.get_running_loop()
    aiowheel.call_later(0.03, trace.append, "wheel")
    loop.call_later(0.06, trace.append, "loop")
    loop.call_later(0.09, trace.append, "never").cancel()
    try:
        async with aiowheel.timeout(0.12):
            await asyncio.Event().wait()
    except TimeoutError:
        trace.append("timeout")


@pytest.mark.realtime
def test_the_real_clock_gives_the_same_order() -> None:
    """The events of the virtual clock have the same order on the real clock."""
    traces: list[list[str]] = []
    for factory in (VirtualClockEventLoop, asyncio.new_event_loop):
        trace: list[str] = []
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(count_down(trace))
        traces.append(trace)

    assert traces == [["wheel", "loop", "timeout"]] * 2
