"""Correct uses of the public API: a type checker finds no error here."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from contextvars import Context, copy_context
from datetime import timedelta
from typing import Any, assert_type

import aiowheel
from aiowheel.dashboard import Dashboard
from aiowheel.integrations.connections import ConnectionWatch, Heartbeat, Limit, LimitedProtocol
from aiowheel.testing import VirtualClock, VirtualClockEventLoop
from aiowheel.trace import RecordedTimer, TraceRecorder


def greet(name: str, times: int) -> None:
    """A callback with arguments."""


async def ask() -> bytes:
    """A coroutine function."""
    return b""


class Fetch(aiowheel.DelayedOperation[bytes]):
    """An operation with a result."""

    def try_complete(self) -> bool:
        """Return False."""
        return False

    def on_complete(self) -> bytes:
        """Return a result."""
        return b""


class Loop(aiowheel.WheelEventLoopMixin, asyncio.SelectorEventLoop):
    """A wheel loop."""


class Limited(LimitedProtocol):
    """A protocol with limits."""

    idle_timeout = timedelta(seconds=60)

    def limit_exceeded(self, limit: Limit) -> None:
        """Do nothing."""
        self.transport.abort()


async def timers(timer: aiowheel.Timer, context: Context) -> None:
    """Use delays that are numbers or timedeltas."""
    for delay in (1, 0.5, timedelta(seconds=1)):
        handle = timer.call_later(delay, greet, "a", 1, context=context)
        assert_type(handle, aiowheel.TimerHandle)
        handle.touch(delay)
        handle.touch()
        assert_type(handle.reschedule(1), bool)
    timer.call_at(timer.time() + 1, greet, "a", 2)
    assert_type(timer.call_later_threadsafe(1, print), aiowheel.ThreadsafeHandle)
    assert_type(timer.every(1, ask, missed="burst", jitter=0.1, first=0), aiowheel.Periodic)
    assert_type(timer.every(1, greet, "a", 1).cancel(running=True), bool)
    async for now in timer.interval(1, missed="delay"):
        assert_type(now, float)
    async with timer.timeout(None) as block:
        assert_type(block, aiowheel.Timeout)
        block.reschedule(None)
    async with timer.move_on_after(1) as moved:
        assert_type(moved, aiowheel.MoveOn)
    async with timer.timeout_at(1.5), timer.move_on_at(timedelta(days=1)):
        pass
    assert_type(await timer.wait_for(ask(), 1), bytes)
    assert_type(await timer.sleep(1, "result"), str)
    assert_type(timer.statistics().lateness.quantile(0.5), float)
    assert_type(asyncio.create_task(timer.sleep(1)), asyncio.Task[None])


async def shared() -> None:
    """Use the functions of the package itself."""
    assert_type(asyncio.create_task(aiowheel.sleep(1)), asyncio.Task[None])
    assert_type(asyncio.create_task(aiowheel.sleep(1, b"")), asyncio.Task[bytes])
    assert_type(await aiowheel.wait_for(ask(), None), bytes)
    assert_type(aiowheel.current_timer(), aiowheel.Timer)
    assert_type(aiowheel.interval(1), AsyncIterator[float])
    aiowheel.call_later(1, greet, "a", 1, context=copy_context())
    aiowheel.call_at(1, print)
    aiowheel.every(1, ask)
    async with aiowheel.timeout(1), aiowheel.timeout_at(None), aiowheel.move_on_after(1):
        pass
    async with aiowheel.ManualTimer(tick=0.5, wheel_size=8) as manual:
        assert_type(manual, aiowheel.ManualTimer)
        assert_type(manual.advance(timedelta(seconds=1)), int)
    async with aiowheel.Timer(tick=timedelta(milliseconds=1)) as timer:
        assert_type(timer, aiowheel.Timer)


async def stacked(limit: float | None) -> None:
    """Enter every context manager in one stack, as those of asyncio."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        assert_type(await enter(aiowheel.timeout(1)), aiowheel.Timeout)
        assert_type(await enter(aiowheel.move_on_after(1)), aiowheel.MoveOn)
        timer = await enter(aiowheel.Timer())
        assert_type(timer, aiowheel.Timer)
        assert_type(await enter(aiowheel.ManualTimer()), aiowheel.ManualTimer)
        assert_type(await enter(aiowheel.Purgatory("fetch")), aiowheel.Purgatory)
        detector = await enter(aiowheel.IdleDetector[str](1, print))
        assert_type(detector, aiowheel.IdleDetector[str])
        await enter(Heartbeat(ask, print, interval=1, timeout=None))
        async with optional(limit), timer.timeout(1):
            pass


def optional(limit: float | None) -> AbstractAsyncContextManager[object]:
    """Return a limit as a context manager of the standard library."""
    return nullcontext() if limit is None else aiowheel.timeout(limit)


def wheel() -> None:
    """Use integers."""
    passive = aiowheel.TimingWheel(1, 64, start=-5)
    entry = passive.schedule(5, "payload")
    assert_type(entry, aiowheel.TimerEntry)
    passive.reschedule(entry, 7)
    assert_type(passive.advance(10), list[aiowheel.TimerEntry])
    assert_type(passive.next_expiration(), int | None)


async def purgatories(timer: aiowheel.Timer) -> None:
    """Check that futures have the type of the result."""
    async with aiowheel.Purgatory("fetch", timer=timer, max_pending=10) as purgatory:
        assert_type(purgatory.watch(Fetch(timedelta(seconds=1)), ["k"]), asyncio.Future[bytes])
        assert_type(purgatory.wait_for(lambda: True, {"k"}, None), asyncio.Future[bool])
        assert_type(purgatory.wait_until({"k": 1, "l": 2.5}, 1, "any"), asyncio.Future[bool])
        assert_type(purgatory.check_and_complete("k", limit=3, budget=0.005), int)
        assert_type(purgatory.advance(("a", 1), 2.5), int)
        assert_type(purgatory.value("k"), int | float | None)
        cancelled = purgatory.cancel_for_key("k")
        assert_type(cancelled[0].outcome, aiowheel.Outcome)
        purgatory.top_keys(3)
        await purgatory.aclose(drain="wait")


async def detectors(timer: aiowheel.Timer) -> None:
    """Check that keys have the type of the callback's argument."""

    def on_idle(key: str) -> None: ...

    async with aiowheel.IdleDetector(30, on_idle, timer=timer) as detector:
        assert_type(detector, aiowheel.IdleDetector[str])
        detector.touch("k")
        assert_type(detector.expires("k"), float | None)
        assert_type(list(detector), list[str])


async def connections(timer: aiowheel.Timer) -> None:
    """Use limits and heartbeats."""
    watch = ConnectionWatch(print, idle=30, heartbeat=10, on_heartbeat=print, timer=timer)
    assert_type(watch.exceeded, Limit | None)
    async with Heartbeat(ask, print, interval=1, timeout=None) as beat:
        assert_type(beat, Heartbeat)


async def testing(clock: VirtualClock) -> None:
    """Use virtual time."""
    await clock.advance(timedelta(hours=1))
    clock.autojump = False
    assert_type(clock.loop, VirtualClockEventLoop)
    VirtualClockEventLoop(seed=1, patience=0, start=5)


async def traces(timer: aiowheel.Timer) -> None:
    """Check that recorded timers have the types of timers."""
    async with TraceRecorder("trace") as recorder:
        recorded = RecordedTimer(timer, recorder)
        recorded.call_later(1, greet, "a", 1).touch(2)
        assert_type(await recorded.sleep(1, 2), int)
        async with recorded.timeout(None) as block:
            assert_type(block, aiowheel.Timeout)


def only_pages(scope: MutableMapping[str, Any]) -> bool:
    """Guard a dashboard as a function."""
    return bool(scope["method"] == "GET")


async def only_local(scope: MutableMapping[str, Any]) -> bool:
    """Guard a dashboard as a coroutine function."""
    return bool(scope["client"])


def dashboards(timer: aiowheel.Timer) -> None:
    """Use guards of both kinds."""
    Dashboard(timer, guard=only_pages)
    Dashboard(timer, guard=only_local)


assert_type(aiowheel.run(ask()), bytes)
assert_type(aiowheel.new_event_loop(uvloop="auto"), asyncio.AbstractEventLoop)
assert_type(Loop().call_later(1, greet, "a", 1), asyncio.TimerHandle)
assert_type(aiowheel.accelerated, bool)
