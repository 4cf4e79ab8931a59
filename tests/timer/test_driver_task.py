"""Timers whose driver task is cancelled or killed, and timers closed in unusual places."""

import asyncio
import gc
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextvars import Context, ContextVar, copy_context
from typing import Any

import pytest

import aiowheel
from aiowheel import ForeignLoopError, Timer, TimerClosedError

Until = Callable[[Callable[[], object]], Awaitable[None]]
Step = Callable[[float], None]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that a test runs in pieces."""
    factory: LoopFactory = pytest.importorskip(request.param).new_event_loop
    made = factory()
    yield made
    made.close()


def driver_task() -> asyncio.Task[object]:
    """Return the task that sleeps until the next deadline."""
    (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "aiowheel-driver")
    return task


def restarts(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the reasons of the logged restarts."""
    texts = (record.getMessage() for record in caplog.records if record.name == "aiowheel")
    return [text for text in texts if text.startswith("aiowheel.driver_restarted")]


@pytest.mark.both_loops
async def test_a_driver_starts_again_where_nothing_can_be_logged(until: Until) -> None:
    """A failure of the logging system does not lose a deadline."""

    def fail(_: logging.LogRecord) -> bool:
        raise BrokenPipeError

    fired: list[int] = []
    logger = logging.getLogger("aiowheel")
    logger.addFilter(fail)
    try:
        async with Timer() as timer:
            timer.call_later(0.003, fired.append, 1)
            await asyncio.sleep(0)
            driver_task().cancel()
            await until(lambda: fired)
    finally:
        logger.removeFilter(fail)

    assert fired == [1]


@pytest.mark.both_loops
async def test_a_cancelled_driver_starts_again(
    until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    """No deadline is lost; a cancellation is ordinary, so nothing is logged."""
    caplog.set_level(logging.WARNING)
    fired: list[str] = []
    async with Timer() as timer:
        timer.call_later(0.003, fired.append, "armed before")
        await asyncio.sleep(0)
        for _ in range(3):
            driver_task().cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        timer.call_later(0.001, fired.append, "armed after")
        await until(lambda: len(fired) == 2)

    assert sorted(fired) == ["armed after", "armed before"]
    assert restarts(caplog) == []


async def test_a_task_factory_may_have_only_the_two_old_parameters(until: Until) -> None:
    """The driver task starts in an empty context, and with its name; uvloop passes options."""
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("of the block")
    contexts: list[Context] = []
    fired: list[int] = []

    def make(
        loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any]
    ) -> asyncio.Task[object]:
        contexts.append(copy_context())
        return asyncio.Task(coro, loop=loop)

    loop = asyncio.get_running_loop()
    loop.set_task_factory(make)  # type: ignore[arg-type] # since Python 3.11 it has options
    try:
        async with Timer() as timer:
            assert not driver_task().done()
            timer.call_later(0, fired.append, 1)
            await until(lambda: fired)
    finally:
        loop.set_task_factory(None)

    assert [variable in context for context in contexts] == [False]


def test_a_timer_that_outlives_its_loop_names_itself(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    """The text of asyncio on the driver task would not lead to the timer."""
    timer = loop.run_until_complete(Timer().__aenter__())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()

    with pytest.warns(ResourceWarning, match="unclosed <Timer"):
        del timer
    gc.collect()

    assert caplog.record_tuples == []


@pytest.mark.both_loops
async def test_a_driver_killed_as_its_alarm_rings_fires_all_the_same(until: Until) -> None:
    """The next driver handles the wake-up that the killed driver had received."""
    fired: list[int] = []
    async with Timer() as timer:
        await asyncio.sleep(0)
        timer.call_later(0, fired.append, 1)
        driver = driver_task()
        asyncio.get_running_loop().call_soon(driver.cancel)
        await until(lambda: fired)

    assert fired == [1]


@pytest.mark.realtime
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("shared", [False, True], ids=["timer", "shared"])
def test_an_interrupt_passes_through_a_callback(
    loop: asyncio.AbstractEventLoop,
    error: type[BaseException],
    shared: bool,  # noqa: FBT001
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The interrupt leaves the loop; when the loop runs again, the other deadlines fire."""
    caplog.set_level(logging.WARNING)
    fired: list[str] = []

    def interrupt() -> None:
        raise error

    async def begin() -> Timer:
        return aiowheel.current_timer() if shared else await Timer().__aenter__()

    def arm() -> None:
        timer.call_later(0.001, fired.append, "before")
        timer.call_later(0.002, interrupt)
        timer.call_later(0.002, fired.append, "same tick")
        timer.call_later(0.003, fired.append, "after")

    timer = loop.run_until_complete(begin())
    loop.call_soon(arm)
    with pytest.raises(error):
        loop.run_forever()
    assert fired[0] == "before"  # uvloop finishes its iteration first

    async def end() -> None:
        await timer.sleep(0.01)
        if not shared:
            await timer.aclose()

    loop.run_until_complete(end())
    assert fired == ["before", "same tick", "after"]
    assert len(restarts(caplog)) == (0 if shared else 1)


@pytest.mark.both_loops
async def test_the_shared_timer_has_no_task_to_kill(until: Until) -> None:
    """Cancelling every task of the loop does not affect the shared timer."""
    fired: list[int] = []
    handle = aiowheel.call_later(0.001, fired.append, 1)

    assert asyncio.all_tasks() == {asyncio.current_task()}
    await until(handle.fired)


@pytest.mark.realtime
def test_a_loop_that_ends_around_an_open_timer(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    """`asyncio.run` cancels the driver together with the timer's owner, without a warning."""
    closed: list[bool] = []

    async def own() -> None:
        async with Timer() as timer:
            timer.call_later(60, print)
            try:
                await asyncio.Event().wait()
            finally:
                await timer.sleep(0.001)
                closed.append(True)

    async def main(tasks: set[asyncio.Task[None]]) -> None:
        tasks.add(asyncio.ensure_future(own()))
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main(set()))

    assert closed == [True]
    assert not [record for record in caplog.records if record.name == "asyncio"]


# --- closing --------------------------------------------------------------------------------


@pytest.mark.both_loops
async def test_closing_again_and_at_once() -> None:
    """Closing is idempotent, also while another task closes; every closer sees it closed."""
    timer = Timer()
    await timer.aclose()  # never entered: nothing to do
    await timer.__aenter__()
    handle = timer.call_later(60, print)

    await asyncio.gather(timer.aclose(), timer.aclose(), timer.aclose())
    await timer.aclose()

    assert handle.cancelled()
    assert [task for task in asyncio.all_tasks() if task.get_name() == "aiowheel-driver"] == []
    with pytest.raises(TimerClosedError):
        timer.call_later(1, print)


@pytest.mark.both_loops
async def test_a_cancelled_close_has_closed(until: Until) -> None:
    """A cancelled closer raises its own cancellation, not the one of the driver."""
    timer = await Timer().__aenter__()
    closing = asyncio.ensure_future(timer.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing

    assert closing.cancelled()
    with pytest.raises(TimerClosedError):
        timer.call_later(1, print)
    await timer.aclose()


async def close_from_a_callback(until: Until) -> tuple[list[int], list[bool]]:
    """Return what ran after a callback started a closing task, and which handles it cancelled."""
    loop = asyncio.get_running_loop()
    ran: list[int] = []
    tasks: list[asyncio.Task[None]] = []
    timer = await Timer().__aenter__()

    def close() -> None:
        ran.append(1)
        tasks.append(loop.create_task(timer.aclose()))

    handles = [timer.call_later(0, close)]
    handles.extend(timer.call_later(delay, ran.append, 2) for delay in (0, 60))
    await until(lambda: tasks)
    await tasks[0]
    return ran, [handle.cancelled() for handle in handles]


@pytest.mark.both_loops
async def test_a_callback_may_start_a_task_that_closes(until: Until) -> None:
    """The slice ends before the timer closes."""
    assert await close_from_a_callback(until) == ([1, 2], [False, False, True])


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")
async def test_an_eager_task_may_close_in_the_middle_of_a_slice(until: Until) -> None:
    """Callbacks after it in the same slice do not run."""
    if sys.version_info >= (3, 12):  # for the type checker
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        assert await close_from_a_callback(until) == ([1], [False, True, True])


def test_closing_while_a_slice_is_half_run(
    clock_loop: asyncio.SelectorEventLoop, step: Step
) -> None:
    """Callbacks that the time limit postponed are dropped and counted."""
    fired: list[int] = []
    two_are_done = asyncio.Event()

    def slow(number: int) -> None:
        fired.append(number)
        step(0.006)  # more than the limit of a slice
        if number == 1:
            two_are_done.set()

    async def main() -> None:
        timer = await Timer().__aenter__()
        handles = [timer.call_later(0.001, slow, number) for number in range(5)]
        await two_are_done.wait()
        await timer.aclose()

        assert [handle.fired() for handle in handles] == [True, True, False, False, False]
        assert [handle.cancelled() for handle in handles] == [False, False, True, True, True]
        statistics = timer.statistics()
        assert (statistics.fired, statistics.cancelled, statistics.pending) == (2, 3, 0)

    clock_loop.run_until_complete(main())

    assert fired == [0, 1]


@pytest.mark.both_loops
async def test_closing_wakes_sleepers_with_an_error() -> None:
    """Sleepers raise an error, because nothing would ever wake them."""
    timer = await Timer().__aenter__()
    sleeper: asyncio.Task[None] = asyncio.ensure_future(timer.sleep(60))
    await asyncio.sleep(0)

    await timer.aclose()

    with pytest.raises(TimerClosedError):
        await sleeper


# --- other loops and threads ----------------------------------------------------------------


def test_another_loop_is_refused(loop: asyncio.AbstractEventLoop) -> None:
    """Every call raises an error that names both loops."""
    timer = loop.run_until_complete(Timer().__aenter__())

    async def elsewhere() -> None:
        own = asyncio.get_running_loop()
        calls: tuple[Callable[[], object], ...] = (
            lambda: timer.call_later(1, print),
            lambda: timer.call_at(1, print),
            lambda: timer.every(1, print),
            lambda: timer.timeout(1),
            lambda: timer.timeout_at(1),
            lambda: timer.sleep(1),
        )
        for call in calls:
            with pytest.raises(ForeignLoopError) as caught:
                call()
            assert repr(loop) in str(caught.value)
            assert repr(own) in str(caught.value)
        with pytest.raises(ForeignLoopError):
            await timer.aclose()

    asyncio.run(elsewhere())
    loop.run_until_complete(timer.aclose())


@pytest.mark.both_loops
async def test_another_thread_is_refused() -> None:
    """Every call checks its thread, also right after a call from the loop's thread."""
    async with Timer() as timer:
        for _ in range(20):
            timer.call_later(60, print).cancel()
            with pytest.raises(ForeignLoopError, match="thread"):
                await asyncio.to_thread(timer.call_later, 1, print)
