"""`interval`: the ticks of a period as an asynchronous iterator."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import pytest

import aiowheel
from aiowheel import ForeignLoopError, ManualTimer, Timer, TimerClosedError

Step = Callable[[float], None]

#: When the body runs if the body, or the loop, is busy from the tick at 300 ms until 951 ms. The
#: traces are tokio's, as in test_periodic.py.
TRACES = {
    "burst": [0, 300, 951, 951, 1200, 1500],
    "delay": [0, 300, 951, 1251, 1551],
    "skip": [0, 300, 951, 1200, 1500],
}
Missed = Literal["burst", "delay", "skip"]


def ms(seconds: float) -> int:
    """Return whole milliseconds, for reading a trace."""
    return round(seconds * 1000)


@pytest.mark.parametrize("missed", TRACES)
@pytest.mark.parametrize("shared", [False, True], ids=["timer", "shared"])
def test_a_slow_body(
    clock_loop: asyncio.SelectorEventLoop,
    missed: Missed,
    shared: bool,  # noqa: FBT001
) -> None:
    """The body takes 651 ms at its second tick; the iterator yields the time."""
    trace: list[int] = []
    start = clock_loop.time()

    async def main() -> None:
        async with Timer() as own:
            timer = aiowheel.current_timer() if shared else own
            make = aiowheel.interval if shared else own.interval
            async for now in make(0.3, missed=missed, first=0):
                trace.append(ms(now - start))
                assert now == pytest.approx(timer.time(), abs=0.001)
                if len(trace) == 2:
                    await timer.sleep(0.651)
                if len(trace) == len(TRACES[missed]):
                    break

    clock_loop.run_until_complete(main())

    assert trace == TRACES[missed]


@pytest.mark.parametrize("missed", TRACES)
def test_a_stalled_loop(clock_loop: asyncio.SelectorEventLoop, step: Step, missed: Missed) -> None:
    """Other work blocks the loop while the iterator waits."""
    trace: list[int] = []
    start = clock_loop.time()

    async def main() -> None:
        async with Timer() as timer:
            timer.call_later(0.301, step, 0.65)
            async for now in timer.interval(0.3, missed=missed, first=0):
                trace.append(ms(now - start))
                if len(trace) == len(TRACES[missed]):
                    break

    clock_loop.run_until_complete(main())

    assert trace == TRACES[missed]


def test_the_first_tick_and_no_drift(clock_loop: asyncio.SelectorEventLoop) -> None:
    """The first tick comes after one period; a thousand periods later the grid is unchanged."""
    start = clock_loop.time()

    async def main() -> list[float]:
        async with Timer() as timer:
            ticks = timer.interval(timedelta(seconds=0.0123))
            return [await anext(ticks) - start for _ in range(1000)]

    times = clock_loop.run_until_complete(main())

    for number, seconds in enumerate(times, 1):
        assert -1e-9 < seconds - number * 0.0123 < 0.0015


def test_break_and_iterate_again(clock_loop: asyncio.SelectorEventLoop) -> None:
    """The schedule continues without an iterator; ticks that no iterator takes are missed ticks."""
    trace: list[int] = []
    start = clock_loop.time()

    async def main() -> None:
        async with Timer() as timer:
            ticks = timer.interval(1, missed="skip")
            async for now in ticks:
                trace.append(ms(now - start))
                if len(trace) == 2:
                    break
            assert len(timer) == 0
            await timer.sleep(2.5)
            async for now in ticks:
                trace.append(ms(now - start))
                if len(trace) == 4:
                    break

    clock_loop.run_until_complete(main())

    assert [round(time, -1) for time in trace] == [1000, 2000, 4500, 5000]


def test_two_iterators(clock_loop: asyncio.SelectorEventLoop) -> None:
    """Each iterator has its own schedule."""
    start = clock_loop.time()

    async def take(ticks: Any, count: int) -> list[float]:
        return [round(await anext(ticks) - start, 1) for _ in range(count)]

    async def main() -> tuple[list[float], list[float]]:
        async with Timer() as timer:
            first, second = timer.interval(1), timer.interval(1.5, first=0)
            one, two = await asyncio.gather(take(first, 3), take(second, 3))
            return one, two

    assert clock_loop.run_until_complete(main()) == ([1, 2, 3], [0, 1.5, 3])


@pytest.mark.both_loops
async def test_a_body_that_is_always_late_lets_others_run() -> None:
    """With "burst" no tick waits for time to pass, but the loop runs between ticks."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    steps = 0
    timer = ManualTimer()
    ticks = timer.interval(1, missed="burst", first=0)
    timer.advance(100)
    async for now in ticks:
        steps += 1
        assert now == 100
        if steps == 50:
            break
    counting.cancel()

    assert turns >= 50


@pytest.mark.both_loops
async def test_closing_while_it_waits() -> None:
    """The waiting step and every later step raise."""
    timer = await Timer().__aenter__()
    ticks = timer.interval(60)

    async def iterate() -> None:
        async for _ in ticks:
            raise AssertionError

    waiting = asyncio.ensure_future(iterate())
    await asyncio.sleep(0)
    assert len(timer) == 1
    await timer.aclose()

    with pytest.raises(TimerClosedError):
        await waiting
    with pytest.raises(TimerClosedError):
        await anext(ticks)
    with pytest.raises(TimerClosedError):
        timer.interval(1)


@pytest.mark.both_loops
async def test_a_cancelled_step_leaves_no_deadline() -> None:
    """The iterator can be used again."""
    timer = ManualTimer()
    ticks = timer.interval(1)
    waiting = asyncio.ensure_future(ticks.__anext__())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert len(timer) == 0

    again = asyncio.ensure_future(ticks.__anext__())
    await asyncio.sleep(0)
    timer.advance(1)
    assert await again == 1


@pytest.mark.both_loops
async def test_another_thread_is_refused() -> None:
    """Creating the iterator and each step raise in another thread."""
    async with Timer() as timer:
        ticks = timer.interval(60)

        async def step() -> None:
            await anext(ticks)

        with pytest.raises(ForeignLoopError):
            await asyncio.to_thread(timer.interval, 1)
        with pytest.raises(ForeignLoopError):
            await asyncio.to_thread(asyncio.run, step())
        assert len(timer) == 0


@pytest.mark.parametrize(
    ("period", "options", "text"),
    [
        (0, {}, "period must be from 1e-9 to 2.3e9 seconds, .* got 0"),
        (float("inf"), {}, "period must be from 1e-9 to 2.3e9 seconds, .* got inf"),
        (1, {"first": -1}, "first must be from 0 to 2.3e9 seconds, .* got -1"),
        (1, {"missed": "catch up"}, "missed must be one of 'skip', 'burst', 'delay'"),
    ],
)
def test_bad_arguments_are_refused_at_the_call(
    period: float, options: dict[str, Any], text: str
) -> None:
    """The call raises, not the first step."""
    with pytest.raises(ValueError, match=text):
        ManualTimer().interval(period, **options)
    with pytest.raises(TypeError, match="period must be a number"):
        ManualTimer().interval("1")  # type: ignore[arg-type]
