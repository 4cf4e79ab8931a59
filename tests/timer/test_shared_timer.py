"""The shared timer of a loop: created on first use, closed with the loop."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

import aiowheel
from aiowheel import IdleDetector, TimerClosedError
from aiowheel.testing import VirtualClockEventLoop

RUNNERS = {"asyncio": asyncio.run, "uvloop": uvloop.run}


class Server:
    """An object that refers to its loop, as protocols do."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.timer = aiowheel.current_timer()

    def tick(self) -> None:
        """Do nothing; the timers call this method."""


async def call_later() -> weakref.ref[Server]:
    """Leave a callback pending when the loop ends."""
    server = Server()
    aiowheel.call_later(3600, server.tick)
    return weakref.ref(server)


async def sleep() -> weakref.ref[Server]:
    """Leave a sleeping task when the loop ends."""
    server = Server()

    async def sleeper() -> None:
        await aiowheel.sleep(3600)
        server.tick()

    task = asyncio.create_task(sleeper())
    await asyncio.sleep(0)
    assert not task.done()
    return weakref.ref(server)


async def watch_idle_keys() -> weakref.ref[Server]:
    """Leave a key pending in a detector whose callback refers to everything."""
    server = Server()
    detector = IdleDetector[Server](3600, lambda server: server.tick())
    detector.touch(server)
    return weakref.ref(server)


@pytest.mark.parametrize("run", RUNNERS.values(), ids=RUNNERS)
@pytest.mark.parametrize("main", [call_later, sleep, watch_idle_keys])
def test_pending_timers_are_freed_with_the_loop(
    run: Callable[..., weakref.ref[Server]], main: Callable[[], object]
) -> None:
    """The timer is freed although a callback refers to its loop, and the loop to its timer."""
    watched = run(main())
    gc.collect()

    assert watched() is None


async def test_a_loop_has_one_shared_timer() -> None:
    """Every call returns the same timer."""
    timer = aiowheel.current_timer()

    assert aiowheel.current_timer() is timer
    handle = aiowheel.call_later(60, int)
    assert len(timer) == 1
    handle.cancel()


def test_each_loop_has_its_own_shared_timer() -> None:
    """A later loop does not get the timer of an ended loop either."""

    async def main() -> aiowheel.Timer:
        return aiowheel.current_timer()

    assert asyncio.run(main()) is not asyncio.run(main())


def test_without_a_loop_there_is_no_shared_timer() -> None:
    """The error is the one of asyncio."""
    with pytest.raises(RuntimeError, match="no running event loop"):
        aiowheel.current_timer()


def test_a_shared_timer_refuses_calls_after_its_loop_closed() -> None:
    """Calls raise, because a callback would never fire."""

    async def main() -> aiowheel.Timer:
        return aiowheel.current_timer()

    timer = asyncio.run(main())

    async def use() -> None:
        timer.call_later(1, int)

    with pytest.raises(TimerClosedError, match="closed"):
        asyncio.run(use())


@pytest.mark.realtime
@pytest.mark.both_loops
async def test_the_module_functions_use_the_shared_timer() -> None:
    """The functions are a callback, an absolute callback, a sleep and a timeout."""
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    aiowheel.call_later(0.001, first.set_result, 1)
    aiowheel.call_at(aiowheel.current_timer().time() + 0.001, second.set_result, 2)

    assert [await first, await second] == [1, 2]
    assert await aiowheel.sleep(0.001, "slept") == "slept"
    with pytest.raises(TimeoutError):
        async with aiowheel.timeout(0.001):
            await asyncio.Event().wait()
    assert aiowheel.current_timer().statistics().pending == 0


@pytest.mark.both_loops
async def test_the_shared_timer_adds_no_task() -> None:
    """`asyncio.run` cancels all tasks before their clean-up, which may still use timeouts."""
    aiowheel.call_later(60, int).cancel()

    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.realtime
@pytest.mark.parametrize("run", RUNNERS.values(), ids=RUNNERS)
def test_timeouts_still_work_while_a_loop_shuts_down(run: Callable[..., None]) -> None:
    """A task that is cancelled by the end of `run` can limit the time of its own clean-up."""
    ended: list[str] = []

    async def clean_up_slowly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            try:
                async with aiowheel.timeout(0.01):
                    await asyncio.Event().wait()
            except TimeoutError:
                ended.append("bounded")

    async def main() -> None:
        tasks.append(asyncio.create_task(clean_up_slowly()))
        await asyncio.sleep(0)

    tasks: list[asyncio.Task[None]] = []
    run(main())

    assert ended == ["bounded"]


class Interrupted(VirtualClockEventLoop):
    """A loop that raises KeyboardInterrupt on request while an alarm is set."""

    interrupt = False

    def __init__(self) -> None:
        super().__init__()
        call_at = self.call_at

        def interrupted(*args: Any, **options: Any) -> asyncio.TimerHandle:
            if self.interrupt:
                self.interrupt = False
                raise KeyboardInterrupt
            return call_at(*args, **options)

        self.call_at = interrupted  # type: ignore[method-assign, assignment]


def test_an_interrupt_while_an_alarm_is_set_loses_no_deadline() -> None:
    """The alarm of a slice is set nevertheless, and a call that fails arms nothing."""
    loop = Interrupted()
    fired: list[str] = []

    def begin() -> None:
        aiowheel.call_later(1, setattr, loop, "interrupt", True)
        aiowheel.call_later(2, fired.append, "waits")

    async def end() -> None:
        aiowheel.call_later(3, fired.append, "alarmed")
        loop.interrupt = True
        with pytest.raises(KeyboardInterrupt):
            aiowheel.call_later(0.5, fired.append, "interrupted")
        await aiowheel.sleep(5)

    loop.call_soon(begin)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    loop.run_until_complete(end())
    loop.close()

    assert fired == ["waits", "alarmed"]


def test_a_closed_loop_needs_no_collector() -> None:
    """Workers that call `asyncio.run` for each job may have switched it off."""
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def main() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        async with aiowheel.timeout(1):
            await aiowheel.sleep(0)

    gc.collect()
    gc.disable()
    try:
        asyncio.run(main())
        assert loops[0]() is None
    finally:
        gc.enable()
