"""What a timer keeps alive, and the memory of a pending timer."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from contextvars import Context

import psutil
import pytest

import aiowheel
from aiowheel import ManualTimer, Timer, TimerHandle

MILLION = 1_000_000


class Connection:
    """An object whose method is the callback."""

    handle: TimerHandle | None = None

    def abort(self, *args: object) -> None:
        """Do nothing; the timer calls this method."""


def arm(timer: Timer, *, as_argument: bool) -> tuple[TimerHandle, weakref.ref[Connection]]:
    """Arm a handle whose timer holds the only reference to a connection."""
    connection = Connection()
    if as_argument:
        handle = timer.call_later(1, Connection.abort, connection)
    else:
        handle = timer.call_later(1, connection.abort)
    return handle, weakref.ref(connection)


@pytest.mark.usefixtures("no_gc")
@pytest.mark.parametrize("as_argument", [False, True], ids=["method", "argument"])
@pytest.mark.parametrize("end", ["fire", "cancel", "close", "drop"])
async def test_a_finished_timer_drops_callback_and_arguments_at_once(
    end: str, *, as_argument: bool
) -> None:
    """They are freed while the handle is kept, without the garbage collector."""
    timer = ManualTimer()
    handle, watched = arm(timer, as_argument=as_argument)

    assert watched() is not None
    match end:
        case "fire":
            timer.advance(1)
        case "cancel":
            handle.cancel()
        case "close":
            await timer.aclose()
        case _:
            del timer

    assert watched() is None
    assert handle.fired() != handle.cancelled()


@pytest.mark.usefixtures("no_gc")
@pytest.mark.parametrize("end", ["fire", "cancel"])
def test_an_owner_that_keeps_its_handle_makes_no_cycle(end: str) -> None:
    """The cycle ends when the timer fires or is cancelled, as for asyncio's handles."""
    timer = ManualTimer()
    connection = Connection()
    connection.handle = timer.call_later(1, connection.abort)
    watched = weakref.ref(connection)
    if end == "fire":
        timer.advance(1)
    else:
        connection.handle.cancel()

    del connection

    assert watched() is None


def test_a_callback_that_raised_keeps_nothing() -> None:
    """The callback is freed once its exception, which holds the frames, is freed."""
    timer = ManualTimer()
    connection = Connection()
    watched = weakref.ref(connection)

    def fail(_: Connection) -> None:
        raise RuntimeError

    handle = timer.call_later(1, fail, connection)
    del connection
    try:
        timer.advance(1)
    except ExceptionGroup as group:
        assert len(group.exceptions) == 1  # noqa: PT017 - the name ends with the block
    gc.collect()

    assert watched() is None
    assert handle.fired()


async def test_dropping_an_unclosed_timer_frees_everything_and_warns() -> None:
    """There is one warning, no pending task that warns as well, and every callback is freed."""
    loop = asyncio.get_running_loop()
    complaints: list[object] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    timer = Timer()
    await timer.__aenter__()
    handle, watched = arm(timer, as_argument=False)
    await asyncio.sleep(0)

    with pytest.warns(ResourceWarning, match="unclosed <Timer"):
        del timer
    assert watched() is None
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gc.collect()

    assert handle.cancelled()
    assert complaints == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_dropping_a_timer_after_its_loop_was_closed_is_safe() -> None:
    """There is nothing left to close."""
    loop = asyncio.new_event_loop()
    timer = Timer()
    timer.share(loop)
    loop.close()

    del timer
    gc.collect()


def resident() -> int:
    """Return the resident memory of the process in bytes."""
    return psutil.Process().memory_info().rss


def fill(timer: Timer, handles: list[TimerHandle | None], callback: Callable[[], object]) -> None:
    """Arm a million deadlines within a minute, in an existing list, which is not counted."""
    for number in range(MILLION):
        handles[number] = timer.call_later(number / 20_000 + 1, callback)


@pytest.mark.slow
@pytest.mark.skipif(not aiowheel.accelerated, reason="the bound is the compiled build's")
@pytest.mark.parametrize("end", ["cancel", "drop", "fire"])
def test_a_million_pending_timers_cost_120_bytes_each_and_give_them_back(end: str) -> None:
    """The callback is a method, the context is empty as in a main program, the handle is kept.

    The limits leave room for the allocator; half of the memory left over would be a leak.
    """
    handles: list[TimerHandle | None] = [None] * MILLION
    timer = ManualTimer()
    connection = Connection()
    gc.collect()
    before = resident()

    Context().run(fill, timer, handles, connection.abort)
    full = resident()
    assert full - before <= 120 * MILLION

    if end == "cancel":
        assert all(handle is not None and handle.cancel() for handle in handles)
    elif end == "drop":
        del timer
    else:
        assert timer.advance(60) == MILLION
    handles.clear()

    assert resident() - before <= 30 * MILLION
