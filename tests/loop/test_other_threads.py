"""A wheel loop accepts `call_later`, `call_at` and `cancel` from other threads, as asyncio's does.

Each callback has exactly one end: it runs, or `cancel` has returned True once.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from threading import Event, Thread, get_ident
from typing import Any, cast

import pytest

from aiowheel import ForeignLoopError
from aiowheel.loop import LoopHandle, WheelSelectorEventLoop, new_event_loop


def nothing() -> None:
    """Do nothing."""


def counts(loop: asyncio.AbstractEventLoop) -> tuple[int, int, int]:
    """Return pending, fired and cancelled timers of a wheel loop, after a recount of the wheel."""
    driver = cast(Any, loop)._wheel_driver
    driver.wheel.check_invariants()
    numbers = driver.statistics()
    return numbers.pending, numbers.fired, numbers.cancelled


async def turn(count: int = 3) -> None:
    """Let the loop run a few iterations."""
    for _ in range(count):
        await asyncio.sleep(0)


def in_thread(call: Callable[[], Any]) -> Any:
    """Run *call* in another thread while this one waits; return its result."""
    results: list[Any] = []
    thread = Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


@pytest.fixture(params=[False, True], ids=["", "debug"])
def debug(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> bool:
    """Set debug mode, in which the loop refuses arming from another thread, or not."""
    loop.set_debug(request.param)
    return cast(bool, request.param)


@pytest.mark.realtime
def test_arming_from_another_thread(loop: asyncio.AbstractEventLoop) -> None:
    """The callback runs on the loop's thread, and the loop wakes for it."""
    ran: list[tuple[str, int]] = []
    done = asyncio.Event()

    def note(name: str) -> None:
        ran.append((name, get_ident()))
        if len(ran) == 2:
            done.set()

    def arm() -> None:
        loop.call_later(0.001, note, "later")
        loop.call_at(loop.time() + 0.001, note, "at")

    async def main() -> None:
        before = counts(loop)
        thread = Thread(target=arm)
        thread.start()
        await done.wait()
        thread.join()
        pending, fired, _ = counts(loop)
        assert (pending, fired) == (before[0], before[1] + 2)

    loop.run_until_complete(main())

    assert sorted(ran) == [("at", get_ident()), ("later", get_ident())]


@pytest.mark.realtime
def test_cancelling_from_another_thread(loop: asyncio.AbstractEventLoop, debug: bool) -> None:  # noqa: FBT001
    """`cancel` returns True once; the callback does not run; the handle leaves the wheel."""
    ran: list[int] = []

    async def main() -> None:
        handle = loop.call_later(0.001, ran.append, 1)
        assert in_thread(handle.cancel)
        assert handle.cancelled()
        assert not in_thread(handle.cancel)
        assert not cast(LoopHandle, handle).cancel()
        await asyncio.sleep(0.003)
        assert cast(LoopHandle, handle).get_context() is None
        assert cast(LoopHandle, handle).payload is None
        pending, _, cancelled = counts(loop)
        assert (pending, cancelled) == (0, 1)

    loop.run_until_complete(main())

    assert ran == []


def test_cancelling_after_the_callback_ran_is_too_late(
    loop: asyncio.AbstractEventLoop,
    debug: bool,  # noqa: FBT001
) -> None:
    """`cancel` returns False, and `cancelled()` is true afterwards, as for asyncio's handle."""

    async def main() -> None:
        handle = loop.call_later(0, nothing)
        await turn()
        assert not in_thread(handle.cancel)
        assert handle.cancelled()

    loop.run_until_complete(main())


def test_cancelling_a_due_handle_before_its_callback_runs(loop: asyncio.AbstractEventLoop) -> None:
    """The slice has begun and the handle is due; it is skipped and counts as cancelled."""
    ran: list[int] = []
    answers: list[bool] = []

    async def main() -> None:
        start = counts(loop)
        handles: list[LoopHandle] = []
        loop.call_later(0, lambda: answers.append(in_thread(handles[0].cancel)))
        handles.append(cast(LoopHandle, loop.call_later(0, ran.append, 1)))
        loop.call_later(0, ran.append, 2)
        await turn(5)
        pending, fired, cancelled = counts(loop)
        assert (pending, fired - start[1], cancelled) == (0, 2, 1)
        assert not handles[0].cancel()

    loop.run_until_complete(main())

    assert answers == [True]
    assert ran == [2]


def test_cancelling_a_handle_that_the_loop_has_not_received(
    loop: asyncio.AbstractEventLoop,
) -> None:
    """A thread arms a handle; either thread cancels it before the loop files it."""
    ran: list[int] = []

    def in_this_thread(call: Callable[[], Any]) -> Any:
        return call()

    async def main() -> None:
        for cancel in (in_thread, in_this_thread):
            handle = in_thread(lambda: loop.call_later(0, ran.append, 1))
            assert not handle.cancelled()
            assert handle.pending
            assert cancel(handle.cancel)
            assert not cancel(handle.cancel)
            assert handle.cancelled()
            await turn(5)
        pending, fired, cancelled = counts(loop)
        assert (pending, fired, cancelled) == (0, 0, 0)

    loop.run_until_complete(main())

    assert ran == []


def test_moving_a_handle_that_the_loop_has_not_received(loop: asyncio.AbstractEventLoop) -> None:
    """On the loop's thread `touch` and `reschedule` file it first; another thread is refused."""
    ran: list[int] = []

    async def main() -> None:
        first = in_thread(lambda: loop.call_later(0, ran.append, 1))
        second = in_thread(lambda: loop.call_later(60, ran.append, 2))
        for call in (partial(first.touch, 5), partial(first.reschedule, 1)):
            assert isinstance(in_thread(partial(error_of, call)), ForeignLoopError)
        assert first.touch(60)
        assert second.reschedule(loop.time() - 1)
        await turn(5)
        assert ran == [2]
        assert counts(loop)[:2] == (1, 1)
        assert first.cancel()
        assert counts(loop)[0] == 0

    loop.run_until_complete(main())


def error_of(call: Callable[[], object]) -> BaseException | None:
    """Return what *call* raises."""
    try:
        call()
    except Exception as error:
        return error
    return None


def test_moving_from_another_thread_is_refused(loop: asyncio.AbstractEventLoop) -> None:
    """The call changes nothing."""

    async def main() -> None:
        handle = cast(LoopHandle, loop.call_later(60, nothing))
        when = handle.when()
        for call in (partial(handle.touch, 1), partial(handle.reschedule, 1)):
            assert isinstance(in_thread(partial(error_of, call)), ForeignLoopError)
        assert handle.when() == when
        assert counts(loop)[0] == 1
        handle.cancel()

    loop.run_until_complete(main())


def test_the_loop_closes_before_a_handle_arrives() -> None:
    """`cancel` returns True once, a move returns False. uvloop files the handle before it stops."""
    loop = new_event_loop(uvloop=False)
    handles: list[Any] = []

    async def main() -> None:
        handles.extend(in_thread(lambda: loop.call_later(60, nothing)) for _ in range(2))
        loop.stop()

    loop.create_task(main())
    loop.run_forever()
    loop.close()

    assert not handles[0].touch(5)
    assert not handles[0].reschedule(5)
    assert handles[0].cancel()
    assert not handles[0].cancel()
    assert in_thread(handles[1].cancel)


def test_the_loop_closes_while_another_thread_cancels() -> None:
    """`cancel` returns True, because the callback will never run."""
    main_thread = get_ident()
    closed = Event()
    answers: list[bool] = []

    class StoppingLoop(WheelSelectorEventLoop):
        """A loop that is stopped and closed before a call of another thread reaches it."""

        def call_soon_threadsafe(  # type: ignore[override]
            self, *args: Any, **options: Any
        ) -> asyncio.Handle:
            if get_ident() != main_thread:
                super().call_soon_threadsafe(self.stop)
                assert closed.wait(30)
            return super().call_soon_threadsafe(*args, **options)

    loop = StoppingLoop()
    handle = cast(LoopHandle, loop.call_later(60, nothing))
    thread = Thread(target=lambda: answers.append(handle.cancel()))
    loop.call_soon(thread.start)
    loop.run_forever()
    loop.close()
    closed.set()
    thread.join(30)

    assert answers == [True]
    assert handle.cancelled()
    assert not handle.cancel()


def test_a_stopped_loop_is_armed_from_any_thread(loop: asyncio.AbstractEventLoop) -> None:
    """As on asyncio's loop, nothing runs until the loop runs."""
    ran: list[int] = []
    handle = in_thread(lambda: loop.call_later(0, ran.append, 1))
    dropped = in_thread(lambda: loop.call_later(0, ran.append, 2))
    assert in_thread(dropped.cancel)
    assert counts(loop)[0] == 1

    loop.run_until_complete(turn())

    assert ran == [1]
    assert not handle.cancel()


@pytest.fixture
def switching() -> Iterator[None]:
    """Let threads switch far more often than usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.realtime
@pytest.mark.usefixtures("switching")
@pytest.mark.parametrize("seed", range(3))
def test_every_callback_has_exactly_one_end(loop: asyncio.AbstractEventLoop, seed: int) -> None:
    """Four threads and the loop arm and cancel each other's handles while they become due."""
    handles: list[tuple[int, Any]] = []
    numbers = iter(range(10**9))  # `next` on it is atomic
    ran: list[int] = []
    won: list[int] = []
    stop = Event()

    def step(random: Random) -> None:
        if random.random() < 0.5 or not handles:
            number = next(numbers)
            delay = random.choice([0, 0, 0.0005, 0.002])
            handles.append((number, loop.call_later(delay, ran.append, number)))
        else:
            number, handle = random.choice(handles[-50:])
            if handle.cancel():
                won.append(number)

    def work(seed: int) -> None:
        random = Random(seed)
        while not stop.is_set():
            step(random)

    async def main() -> None:
        threads = [Thread(target=work, args=(10 * seed + number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        random = Random(seed)
        while len(handles) < 4000:
            step(random)
            await asyncio.sleep(0)
        stop.set()
        for thread in threads:
            thread.join()
        # Several slices of a busy loop; a lost callback makes the test time out.
        while len(ran) + len(won) < len(handles):  # noqa: ASYNC110 - the loop sets no event
            await asyncio.sleep(0.01)
        assert counts(loop)[0] == 0

    loop.run_until_complete(main())

    assert sorted(ran + won) == sorted(number for number, _ in handles)
