"""`wait_for`: as in asyncio, on the wheel. CPython's own tests of it run in tests/stdlib."""

import asyncio
import sys
import types
from collections.abc import Generator
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


async def test_what_cannot_be_awaited_is_refused_at_the_call() -> None:
    """A coroutine of a generator, which has no `__await__`, can be awaited."""

    @types.coroutine
    def generator() -> Generator[None, None, int]:
        yield
        return 42

    assert await aiowheel.wait_for(generator(), 10) == 42
    not_awaitable: Any = 42
    with pytest.raises(TypeError, match="fut must be a future or another awaitable, got 42"):
        _ = aiowheel.wait_for(not_awaitable, 10)


async def end_of(future: asyncio.Future[str]) -> str:
    """Return the result of a future or the name of its error."""
    await asyncio.wait({future})
    if future.cancelled():
        return "cancelled"
    error = future.exception()
    return future.result() if error is None else type(error).__name__


async def stubborn(ended: list[str], *, fails: bool = False) -> str:
    """Suppress one cancellation, then return or fail."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        ended.append("cancelled")
        await asyncio.sleep(0)
        ended.append("cleaned up")
    if fails:
        raise LookupError
    return "late"


@pytest.mark.realtime
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(
    ("delay", "cancelled_in_turn"),
    [(0.001, None), (0, None), *((delay, turn) for delay in (0, 60) for turn in (1, 2, 3, 4))],
)
@pytest.mark.parametrize("as_task", [False, True])
async def test_every_end_is_asyncios(
    fails: bool,  # noqa: FBT001 - the parameter of the test
    delay: float,
    cancelled_in_turn: int | None,
    as_task: bool,  # noqa: FBT001 - the parameter of the test
) -> None:
    """A task that suppresses its cancellation ends as with `asyncio.wait_for`.

    The caller is not cancelled, or in one of the first turns of the loop, also in the clean-up.
    """

    async def ends(wait_for: Any) -> list[str]:
        ended: list[str] = []
        work: Any = stubborn(ended, fails=fails)
        if as_task:
            work = asyncio.ensure_future(work)
            await asyncio.sleep(0)
        wait: asyncio.Future[str] = asyncio.ensure_future(wait_for(work, delay))
        if cancelled_in_turn is not None:
            for _ in range(cancelled_in_turn):
                await asyncio.sleep(0)
            wait.cancel()
        end = await end_of(wait)
        if as_task:
            await end_of(work)
        return [*ended, end]

    assert await ends(aiowheel.wait_for) == await ends(asyncio.wait_for)


async def test_a_result_in_the_turn_of_the_cancellation() -> None:
    """The wait ends as with `asyncio.wait_for`, which prefers the result on Python 3.11."""

    async def ends(wait_for: Any) -> str:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        wait: asyncio.Future[str] = asyncio.ensure_future(wait_for(future, 60))
        await asyncio.sleep(0)
        future.set_result("result")
        wait.cancel()
        return await end_of(wait)

    assert await ends(aiowheel.wait_for) == await ends(asyncio.wait_for)


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


@pytest.mark.parametrize("seconds", [0, 30])
async def test_a_future_of_another_loop_is_refused(seconds: float) -> None:
    """It could not wake this loop, not even for the timeout."""
    other = asyncio.new_event_loop()
    try:
        future = other.create_future()
        with pytest.raises((ValueError, RuntimeError), match="different loop"):
            await aiowheel.wait_for(future, seconds)
    finally:
        other.close()
