"""Wrong uses of the public API: a type checker finds exactly the error that each line names."""

import asyncio
from contextvars import Context

import aiowheel
from aiowheel.integrations.asgi import SlowRequestMiddleware, wheel_lifespan
from aiowheel.integrations.connections import ConnectionWatch, Heartbeat, idle_guard
from aiowheel.testing import VirtualClock, VirtualClockEventLoop
from aiowheel.trace import RecordedTimer, TraceRecorder


def greet(name: str, times: int) -> None:
    """A callback with arguments."""


async def ask() -> bool:
    """A coroutine function."""
    return True


class Fetch(aiowheel.DelayedOperation[bytes]):
    """An operation with a result."""


class Asynchronous(aiowheel.DelayedOperation[bytes]):
    """An operation whose condition would always be true."""

    async def try_complete(self) -> bool:  # expect: override
        """Return True in a coroutine, which is never awaited."""
        return False


async def timers(timer: aiowheel.Timer, handle: aiowheel.TimerHandle, context: Context) -> None:
    """Pass wrong delays, callbacks and arguments."""
    timer.call_later("1", greet, "a", 1)  # expect: arg-type
    timer.call_later(None, greet, "a", 1)  # expect: arg-type
    timer.call_later(1, greet, "a")  # expect: arg-type
    timer.call_later(1, greet, 1, "a")  # expect: arg-type
    timer.call_later(1, None)  # expect: arg-type
    timer.call_later(1, greet, "a", 1, context=1)  # expect: arg-type
    timer.call_at("noon", print)  # expect: arg-type
    timer.call_later_threadsafe(b"1", print)  # expect: arg-type
    timer.every(None, print)  # expect: arg-type
    timer.every(1, print, missed="never")  # expect: arg-type
    timer.every(1, greet, "a")  # expect: arg-type
    timer.every(1, print, jitter="0.1")  # expect: arg-type
    timer.every(1, print).cancel(running="yes")  # expect: arg-type
    timer.every(1, print).cancel(True)  # expect: call-arg
    timer.interval("1")  # expect: arg-type
    timer.interval(1, missed=None)  # expect: arg-type
    timer.timeout("1")  # expect: arg-type
    timer.timeout_at([])  # expect: arg-type
    timer.move_on_after("1")  # expect: arg-type
    timer.move_on_at(1j)  # expect: arg-type
    await timer.wait_for(1, 1)  # expect: arg-type
    await timer.wait_for(ask, 1)  # expect: arg-type
    await timer.wait_for(ask(), "1")  # expect: arg-type
    await timer.sleep(None)  # expect: call-overload
    handle.touch("1")  # expect: arg-type
    handle.reschedule(None)  # expect: arg-type
    timer.timeout(1).reschedule("1")  # expect: arg-type
    timer.statistics().lateness.quantile("p99")  # expect: arg-type
    timer.timeout(1).extend(1)  # expect: attr-defined
    number: int = timer.call_later(1, print)  # expect: assignment
    task: asyncio.Task[int] = asyncio.create_task(timer.sleep(1))  # expect: arg-type
    aiowheel.call_later("1", print)  # expect: arg-type
    aiowheel.call_at(None, print)  # expect: arg-type
    aiowheel.every(1, print, missed="all")  # expect: arg-type
    aiowheel.timeout("1")  # expect: arg-type
    await aiowheel.wait_for(ask(), "1")  # expect: arg-type
    await aiowheel.sleep("1")  # expect: call-overload
    assert number, task


def constructors() -> None:
    """Pass wrong arguments to constructors of timers, wheels and loops."""
    aiowheel.Timer(tick="1 ms")  # expect: arg-type
    aiowheel.Timer(wheel_size=1.5)  # expect: arg-type
    aiowheel.Timer(clock="wall")  # expect: arg-type
    aiowheel.Timer(0.001)  # expect: call-arg
    aiowheel.ManualTimer().advance(None)  # expect: arg-type
    aiowheel.TimingWheel(0.001)  # expect: arg-type
    aiowheel.TimingWheel().schedule(1.5)  # expect: arg-type
    aiowheel.TimingWheel().advance("10")  # expect: arg-type
    aiowheel.TimingWheel().reschedule(5, 7)  # expect: arg-type
    aiowheel.new_event_loop(uvloop="yes")  # expect: arg-type
    aiowheel.run(ask)  # expect: arg-type


async def purgatories(purgatory: aiowheel.Purgatory) -> None:
    """Pass wrong operations, keys, conditions and options."""
    aiowheel.Purgatory(5)  # expect: arg-type
    aiowheel.Purgatory(timer=1)  # expect: arg-type
    aiowheel.Purgatory(max_pending="5")  # expect: arg-type
    aiowheel.Purgatory(instruments=[print])  # expect: list-item
    Fetch("1")  # expect: arg-type
    Fetch()  # expect: call-arg
    purgatory.watch(Fetch, ["k"])  # expect: arg-type
    purgatory.watch(Fetch(1), 5)  # expect: arg-type
    purgatory.wait_for(ask, ["k"], 1)  # expect: arg-type
    purgatory.wait_for(lambda: True, ["k"])  # expect: call-arg
    purgatory.wait_until({"k": "1"}, 1)  # expect: dict-item
    purgatory.wait_until({"k": 1}, 1, "some")  # expect: arg-type
    purgatory.check_and_complete([])  # expect: arg-type
    purgatory.check_and_complete("k", limit="1")  # expect: arg-type
    purgatory.advance("k", "1")  # expect: arg-type
    await purgatory.aclose(drain="now")  # expect: arg-type
    text: str = await purgatory.watch(Fetch(1), ["k"])  # expect: arg-type
    names: list[str] = purgatory.cancel_for_key("k")  # expect: assignment
    assert text, names


def detectors(timer: aiowheel.Timer) -> None:
    """Use keys of the wrong type."""

    def on_idle(key: str) -> None: ...

    aiowheel.IdleDetector("30", on_idle)  # expect: arg-type
    aiowheel.IdleDetector(30, None)  # expect: arg-type
    aiowheel.IdleDetector(30, on_idle, timer="mine")  # expect: arg-type
    aiowheel.IdleDetector(30, on_idle, timer=timer).touch(5)  # expect: arg-type


async def connections(writer: asyncio.StreamWriter) -> None:
    """Pass wrong limits and heartbeats."""
    ConnectionWatch(print, idle="30")  # expect: arg-type
    ConnectionWatch(None)  # expect: arg-type
    Heartbeat(ask, print, interval=None, timeout=1)  # expect: arg-type
    Heartbeat(ask, print, interval=1)  # expect: call-arg
    idle_guard(writer, "30")  # expect: arg-type
    SlowRequestMiddleware(print)  # expect: arg-type
    wheel_lifespan(tick="1")  # expect: arg-type


async def others(clock: VirtualClock, timer: aiowheel.Timer, recorder: TraceRecorder) -> None:
    """Misuse virtual time and traces."""
    await clock.advance("1")  # expect: arg-type
    clock.autojump = "on"  # expect: assignment
    VirtualClockEventLoop(seed="1")  # expect: arg-type
    RecordedTimer(timer, timer)  # expect: arg-type
    RecordedTimer(timer, recorder).call_later("1", print)  # expect: arg-type
    await RecordedTimer(timer, recorder).sleep("1")  # expect: call-overload
    TraceRecorder("trace", batch_rows="1")  # expect: arg-type
