"""`call_later_threadsafe`: from any thread, with exactly one end for each call."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextvars import Context, ContextVar
from random import Random
from threading import Thread, get_ident
from typing import Any

import pytest

from aiowheel import (
    ForeignLoopError,
    ManualTimer,
    ThreadsafeHandle,
    Timer,
    TimerClosedError,
    current_timer,
)

pytestmark = pytest.mark.both_loops

Until = Callable[[Callable[[], object]], Awaitable[None]]

THREADS = 8
EACH = 125


async def in_threads(work: Callable[[int], None]) -> None:
    """Run *work* in several threads at once while the loop continues."""
    await asyncio.gather(*(asyncio.to_thread(work, number) for number in range(THREADS)))


async def test_the_callback_runs_on_the_loops_thread(until: Until) -> None:
    """The callback runs in the context of the calling thread, and not early."""
    variable: ContextVar[str] = ContextVar("variable", default="unset")
    ran: list[tuple[int, str, float]] = []

    def note(word: str) -> None:
        ran.append((get_ident(), word + variable.get(), time.monotonic()))

    def arm(timer: Timer) -> ThreadsafeHandle:
        variable.set("thread's")
        return timer.call_later_threadsafe(0.002, note, "the ")

    async with Timer() as timer:
        begun = time.monotonic()
        handle = await asyncio.to_thread(arm, timer)
        await until(lambda: ran)

        assert ran[0][:2] == (get_ident(), "the thread's")
        assert ran[0][2] >= begun + 0.002
        assert handle.fired()
        assert not handle.cancelled()
        assert not handle.cancel()


async def test_a_cancelled_callback_never_runs(until: Until) -> None:
    """`cancel` returns True once, and the deadline leaves the wheel."""
    async with Timer() as timer:
        handle = await asyncio.to_thread(timer.call_later_threadsafe, 60, print, "never")
        await until(lambda: len(timer) == 1)

        assert await asyncio.to_thread(handle.cancel)
        assert not handle.cancel()
        assert handle.cancelled()
        await until(lambda: len(timer) == 0)

    assert not handle.fired()


async def test_a_call_cancelled_before_it_arrives_is_never_armed(until: Until) -> None:
    """The loop receives the call and its cancellation together and arms nothing."""
    async with Timer() as timer:
        ran: list[int] = []
        handle = timer.call_later_threadsafe(0, ran.append, 1)
        assert handle.cancel()
        marker = timer.call_later_threadsafe(0, ran.append, 2)
        await until(marker.fired)

        assert ran == [2]
        assert timer.statistics().scheduled == 1


async def test_a_call_cancelled_by_one_of_the_same_tick_counts_as_cancelled(until: Until) -> None:
    """The deadline has left the wheel as due before the loop receives the cancellation."""
    async with Timer() as timer:
        ran: list[bool] = []
        first = timer.call_later_threadsafe(0, lambda: ran.append(second.cancel()))
        second: ThreadsafeHandle = timer.call_later_threadsafe(0, ran.append, False)
        last = timer.call_later_threadsafe(0, int)
        await until(last.fired)

        numbers = timer.statistics()
        assert (ran, first.fired(), second.cancelled()) == ([True], True, True)
        assert (numbers.pending, numbers.scheduled) == (0, 3)
        assert (numbers.fired, numbers.cancelled, numbers.lateness.count) == (2, 1, 2)


async def test_a_burst_from_many_threads_wakes_the_loop_once(
    until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand calls while the loop is busy cause one wake-up, and all of them fire."""
    loop = asyncio.get_running_loop()
    wakeups: list[object] = []
    wake = loop.call_soon_threadsafe

    def counted(callback: Callable[..., object], *, context: Context) -> asyncio.Handle:
        wakeups.append(callback)
        return wake(callback, context=context)

    async with Timer() as timer:
        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        ran: list[int] = []

        def work(number: int) -> None:
            for _ in range(EACH):
                timer.call_later_threadsafe(0, ran.append, number)

        threads = [Thread(target=work, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        await until(lambda: len(ran) == THREADS * EACH)

    assert len(wakeups) == 1


async def test_the_deadline_counts_from_the_call() -> None:
    """A busy loop does not move the deadline, although it receives the call late."""
    async with Timer() as timer:
        asked: list[ThreadsafeHandle] = []

        def arm() -> None:
            asked.append(timer.call_later_threadsafe(0.5, print))

        before = timer.time()
        thread = Thread(target=arm)
        thread.start()
        thread.join()  # the loop stays busy until the thread has made the call
        after = time.monotonic()

        assert before + 0.5 <= asked[0].when() <= after + 0.5


async def test_another_thread_may_not_use_the_plain_calls() -> None:
    """The error names the loops, the thread and the alternative."""

    async def call_in_another_loop() -> None:
        timer.call_later(1, print)

    async with Timer() as timer:
        with pytest.raises(
            ForeignLoopError, match=r"Loop.*, but no event loop runs in thread '.*threadsafe"
        ):
            await asyncio.to_thread(timer.call_later, 1, print)
        with pytest.raises(
            ForeignLoopError, match=r"Loop.*, but was called from .*Loop.* in thread '.*threadsafe"
        ):
            await asyncio.to_thread(asyncio.run, call_in_another_loop())


@pytest.mark.parametrize("delay", [float("nan"), None, True, "1"])
async def test_a_bad_delay_is_refused_in_the_calling_thread(delay: Any) -> None:
    """The caller can handle the error there."""
    async with Timer() as timer:
        with pytest.raises((TypeError, ValueError), match="delay must"):
            await asyncio.to_thread(timer.call_later_threadsafe, delay, print)


async def test_closing_cancels_pending_calls_and_calls_in_the_inbox(until: Until) -> None:
    """Pending calls and calls that have not arrived are cancelled."""
    async with Timer() as timer:
        armed = timer.call_later_threadsafe(60, print)
        await until(lambda: len(timer) == 1)
        on_its_way = timer.call_later_threadsafe(60, print)

    assert armed.cancelled()
    assert on_its_way.cancelled()
    with pytest.raises(
        TimerClosedError,
        match=r"^the timer is closed: the call of <built-in function print> was refused$",
    ):
        timer.call_later_threadsafe(60, print)
    with pytest.raises(TimerClosedError, match="not open"):
        Timer().call_later_threadsafe(60, print)


def test_a_closed_loop_cancels_pending_calls() -> None:
    """The shared timer ends with its loop, and so do its pending calls."""
    handles: list[ThreadsafeHandle] = []

    async def main() -> Timer:
        handles.append(current_timer().call_later_threadsafe(60, print))
        await asyncio.sleep(0)
        handles.append(current_timer().call_later_threadsafe(60, print))
        return current_timer()

    timer = asyncio.run(main())

    assert [handle.cancelled() for handle in handles] == [True, True]
    assert [handle.cancel() for handle in handles] == [False, False]
    with pytest.raises(TimerClosedError, match="closed"):
        timer.call_later_threadsafe(60, print)


def test_a_manual_timer_arms_at_once() -> None:
    """A manual timer has no loop to wake; the rule for due callbacks is the same."""
    timer = ManualTimer()
    ran: list[int] = []
    handle = timer.call_later_threadsafe(1, ran.append, 1)
    other = timer.call_later_threadsafe(1, ran.append, 2)

    other.cancel()
    assert len(timer) == 1
    timer.advance(1)

    assert ran == [1]
    assert handle.fired()


def test_a_thread_safe_handle_is_pending_fired_or_cancelled() -> None:
    """Its text shows the state and the deadline; a negative delay counts as 0."""
    timer = ManualTimer()
    handles = [timer.call_later_threadsafe(delay, int) for delay in (-5, 0, 1, 2)]
    handles[2].cancel()
    timer.advance(0)

    assert [repr(handle) for handle in handles] == [
        "<ThreadsafeHandle when=0.0 fired>",
        "<ThreadsafeHandle when=0.0 fired>",
        "<ThreadsafeHandle when=1.0 cancelled>",
        "<ThreadsafeHandle when=2.0 pending>",
    ]
    assert [handle.fired() for handle in handles] == [True, True, False, False]


def test_a_call_is_cancelled_if_its_loop_is_closed_around_an_open_timer() -> None:
    """The call is in the wheel, and nothing runs the wheel any more."""
    loop = asyncio.SelectorEventLoop()

    async def main() -> ThreadsafeHandle:
        handle = current_timer().call_later_threadsafe(60, print)
        await asyncio.sleep(0)
        assert len(current_timer()) == 1
        assert not handle.cancelled()
        return handle

    handle = loop.run_until_complete(main())
    asyncio.SelectorEventLoop.close(loop)  # the loop's own method would close the timer as well

    assert handle.cancelled()
    assert not handle.cancel()
    loop.close()


async def test_a_bad_callback_is_reported_with_its_handle(until: Until) -> None:
    """The other callbacks run."""
    contexts: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))

    async with Timer() as timer:
        bad = timer.call_later_threadsafe(0, "word".index, "x")
        good = timer.call_later_threadsafe(0, "word".index, "w")
        await until(good.fired)

    assert [context["handle"] for context in contexts] == [bad]
    assert isinstance(contexts[0]["exception"], ValueError)


@pytest.mark.realtime
@pytest.mark.parametrize("seed", range(3))
async def test_every_call_has_exactly_one_end(seed: int) -> None:
    """Threads arm and cancel while the driver sleeps, runs and closes.

    For every interleaving each accepted call fires, or is cancelled by the call of `cancel` that
    returned True, or is dropped by the close.
    """
    timer = Timer(tick=0.0001)
    accepted: list[ThreadsafeHandle] = []
    ran: list[int] = []
    won: list[ThreadsafeHandle] = []
    refused: list[int] = []

    def work(number: int) -> None:
        random = Random(seed * THREADS + number)
        mine: list[ThreadsafeHandle] = []
        for _ in range(EACH):
            delay = random.choice([0, 0.0005, 0.002, 60])
            try:
                handle = timer.call_later_threadsafe(delay, ran.append, number)
            except TimerClosedError:
                refused.append(number)
                continue
            accepted.append(handle)
            mine.append(handle)
            target = random.choice(mine)
            if random.random() < 0.5 and target.cancel():
                won.append(target)
            if random.random() < 0.05:
                time.sleep(0.0005)

    async with timer:
        running = asyncio.ensure_future(in_threads(work))
        await timer.sleep(0.004)
    await running

    fired = [handle for handle in accepted if handle.fired()]
    dropped = [handle for handle in accepted if handle.cancelled() and handle not in set(won)]
    assert len(fired) + len(won) + len(dropped) == len(accepted)
    assert len(set(won)) == len(won)
    assert not set(won) & set(fired)
    assert len(ran) == len(fired)
    assert len(accepted) + len(refused) == THREADS * EACH
    assert len(timer) == 0


async def test_a_timer_is_closed_to_threads_until_it_is_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread may call while the timer is being entered."""
    timer = Timer()
    refused: list[str] = []

    def call_meanwhile() -> asyncio.Event:
        for call in (timer.call_later_threadsafe, timer.every):
            try:
                call(1, print)
            except TimerClosedError as error:
                refused.append(str(error))
        return asyncio.Event()

    monkeypatch.setattr("aiowheel.timer._periodic_tasks.Event", call_meanwhile)
    async with timer:
        assert timer.call_later_threadsafe(1, print).cancel()

    assert refused == ["<Timer tick=0.001 new> is not open: use it inside `async with`"] * 2
