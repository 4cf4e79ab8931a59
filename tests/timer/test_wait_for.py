"""`wait_for`: as in asyncio, on the wheel. CPython's own tests of it run in tests/stdlib."""

import asyncio
import sys
from datetime import timedelta
from typing import Any

import pytest

import aiowheel
from aiowheel import ManualTimer, Timer

pytestmark = pytest.mark.both_loops


async def answer() -> int:
    """Return a number."""
    await asyncio.sleep(0)
    return 42


async def test_the_result_comes_back() -> None:
    """The awaitable is a coroutine, a task or a finished future."""
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    done.set_result(1)

    async with Timer() as timer:
        assert await timer.wait_for(answer(), 10) == 42
        assert await timer.wait_for(asyncio.ensure_future(answer()), timedelta(seconds=10)) == 42
        assert await timer.wait_for(done, 0) == 1
        assert await aiowheel.wait_for(answer(), None) == 42
        assert len(timer) == 0


@pytest.mark.realtime
async def test_a_timeout_cancels_the_awaited_task() -> None:
    """The awaited task has ended when the TimeoutError is raised."""
    async with Timer() as timer:
        task = asyncio.ensure_future(asyncio.Event().wait())

        with pytest.raises(TimeoutError) as caught:
            await timer.wait_for(task, 0.001)

        assert task.cancelled()
        assert isinstance(caught.value.__cause__, asyncio.CancelledError)
        assert len(timer) == 0


async def test_cancelling_the_wait_cancels_the_awaited_task() -> None:
    """No deadline stays behind."""
    async with Timer() as timer:
        task = asyncio.ensure_future(asyncio.Event().wait())
        waiting = asyncio.ensure_future(timer.wait_for(task, 10))
        await asyncio.sleep(0)
        assert len(timer) == 1

        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

        assert task.cancelled()
        assert len(timer) == 0


@pytest.mark.realtime
async def test_an_error_during_the_cancellation_is_raised() -> None:
    """An error of the task is not hidden behind the TimeoutError."""

    async def fail() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise LookupError

    with pytest.raises(LookupError):
        await aiowheel.wait_for(fail(), 0.001)


async def test_in_place_since_python_312() -> None:
    """Python 3.11 wraps a coroutine in a task; later versions await it in the same task."""
    current = asyncio.current_task()

    async def running_task() -> asyncio.Task[Any] | None:
        return asyncio.current_task()

    assert (await aiowheel.wait_for(running_task(), 10) is current) == (sys.version_info >= (3, 12))


@pytest.mark.parametrize(
    ("bad", "error"), [("1", TypeError), (True, TypeError), (float("nan"), ValueError)]
)
async def test_a_bad_timeout_is_refused(bad: Any, error: type[Exception]) -> None:
    """The error is raised before anything is awaited."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    with pytest.raises(error, match="timeout must"):
        await aiowheel.wait_for(future, bad)

    assert not future.done()


async def test_works_on_a_manual_clock() -> None:
    """The TimeoutError comes when the clock reaches the deadline."""
    timer = ManualTimer()
    waiting = asyncio.ensure_future(timer.wait_for(asyncio.Event().wait(), 30))
    for _ in range(3):
        await asyncio.sleep(0)

    timer.advance(29.999)
    await asyncio.sleep(0)
    assert not waiting.done()
    timer.advance(0.001)

    with pytest.raises(TimeoutError):
        await waiting
