"""A virtual loop that could only wait endlessly raises an error with the waiting tasks."""

import asyncio
import math
import pickle
import threading
import time
from collections.abc import Callable, Coroutine

import anyio
import pytest

import aiowheel
from aiowheel.testing import VirtualClockEventLoop, VirtualDeadlockError, _loop

pytestmark = pytest.mark.one_build

Loops = Callable[..., VirtualClockEventLoop]


@pytest.fixture(autouse=True)
def alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide other threads, which other tests may have left."""
    if "thread" not in request.node.name:
        monkeypatch.setattr(threading, "active_count", lambda: 1)


def deadlock_of(
    main: Callable[[], Coroutine[None, None, object]], loop: VirtualClockEventLoop
) -> VirtualDeadlockError:
    """Return the error that ends *main*, after which the loop can be closed."""
    with (
        asyncio.Runner(loop_factory=lambda: loop) as runner,
        pytest.raises(VirtualDeadlockError) as caught,
    ):
        runner.run(main())
    return caught.value


async def wait_endlessly() -> None:
    """Wait for an event that is never set."""
    await asyncio.Event().wait()


async def main_and_worker() -> None:
    """Run two tasks that wait at different lines."""
    queue: asyncio.Queue[None] = asyncio.Queue()
    async with asyncio.TaskGroup() as group:
        group.create_task(queue.get(), name="getter")
        await asyncio.sleep(12.5)
        await wait_endlessly()


def test_the_error_names_the_tasks_and_their_lines(virtual_loop: Loops) -> None:
    """The error has the time, and the innermost line of the caller's own code for each task."""
    error = deadlock_of(main_and_worker, virtual_loop())

    lines = sorted(error.waiting)
    assert len(lines) == 2
    assert "in wait_endlessly, " in lines[0]
    assert lines[0].endswith(": await asyncio.Event().wait()")
    assert "in Queue.get, " in lines[1]
    assert str(error).startswith("deadlock at 12.5 s: no callback is ready")
    assert "waiting tasks: 2\n" in str(error)


def test_the_error_names_the_callers_line_under_anyio(virtual_loop: Loops) -> None:
    """The tools of anyio are as much machinery as those of asyncio."""

    async def wait_with_anyio() -> None:
        await anyio.Event().wait()

    (line,) = deadlock_of(wait_with_anyio, virtual_loop()).waiting

    assert line.endswith(": await anyio.Event().wait()")


def test_an_endless_sleep_is_a_deadlock(virtual_loop: Loops) -> None:
    """A sleep for `inf` never ends; on the wheel, the line is the caller's in both builds."""

    async def sleep_endlessly() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(math.inf))
            await aiowheel.sleep(math.inf)

    error = deadlock_of(sleep_endlessly, virtual_loop())

    assert any(each.endswith(": await aiowheel.sleep(math.inf)") for each in error.waiting)


def test_without_autojump_the_error_says_what_moves_the_clock(virtual_loop: Loops) -> None:
    """Sleeping tasks wait for a call of `advance`."""
    error = deadlock_of(lambda: asyncio.sleep(30), virtual_loop(autojump=False))

    assert "1 timers are armed, the next for 30.0 s" in str(error)
    assert "only advance() moves the clock" in str(error)


def test_a_long_list_is_cut(virtual_loop: Loops) -> None:
    """The text has twenty tasks; the attribute of the error has all of them."""

    async def crowd() -> None:
        await asyncio.gather(*(wait_endlessly() for _ in range(30)))

    error = deadlock_of(crowd, virtual_loop())

    assert len(error.waiting) == 31
    assert str(error).endswith("  and 11 more")
    assert len(str(error).splitlines()) == 22


def test_a_loop_can_run_again_after_a_deadlock(virtual_loop: Loops) -> None:
    """The error ends the run but not the loop, so the waiting task can still be completed."""
    loop = virtual_loop()
    event = asyncio.Event()
    waiting = loop.create_task(event.wait())
    with pytest.raises(VirtualDeadlockError):
        loop.run_until_complete(waiting)

    event.set()

    assert loop.run_until_complete(waiting)


def test_a_loop_without_tasks_and_timers_is_a_deadlock(virtual_loop: Loops) -> None:
    """`run_forever` without a task and a timer would never return."""
    with pytest.raises(VirtualDeadlockError, match="waiting tasks: 0"):
        virtual_loop().run_forever()


@pytest.mark.realtime
def test_the_end_of_a_thread_without_a_call_is_a_deadlock(virtual_loop: Loops) -> None:
    """The thread was started after the loop, which waits for it, but not longer than it lives."""
    go_on = threading.Event()

    async def main() -> None:
        threading.Thread(target=go_on.wait).start()
        await wait_endlessly()

    threading.Timer(0.2, go_on.set).start()
    deadlock_of(main, virtual_loop())

    assert go_on.is_set()


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the loop wait for threads for less than a second."""
    monkeypatch.setattr(_loop, "_GRACE_OF_NEW_THREADS", 0.3)
    monkeypatch.setattr(_loop, "_GRACE", 0.1)


@pytest.mark.realtime
@pytest.mark.usefixtures("short_grace")
def test_a_thread_that_never_calls_is_a_deadlock(virtual_loop: Loops) -> None:
    """For example a worker of a pool of your own; the loop waits for it for some seconds."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait, args=(20,))

    async def main() -> None:
        thread.start()
        await wait_endlessly()

    deadlock_of(main, virtual_loop())

    assert thread.is_alive()  # the loop did not wait for its end
    end.set()
    thread.join()


def test_a_thread_has_time_to_call_before_a_deadlock_is_reported(virtual_loop: Loops) -> None:
    """A thread that was started before the loop may still call the loop."""
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait)
    thread.start()
    loop = virtual_loop(patience=0)
    called = loop.create_future()

    def call() -> None:
        go_on.wait()
        loop.call_soon_threadsafe(called.set_result, "called")

    caller = threading.Thread(target=call)
    caller.start()
    loop.call_soon(go_on.set)

    assert loop.run_until_complete(called) == "called"
    thread.join()
    caller.join()


@pytest.mark.realtime
@pytest.mark.usefixtures("short_grace")
def test_a_deadlock_beside_a_thread_is_reported_while_time_is_frozen(
    virtual_loop: Loops, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries such as freezegun replace the functions of `time` in every module."""
    for name, value in list(vars(_loop).items()):
        if value is time.monotonic:
            monkeypatch.setattr(_loop, name, lambda: 1.0)
    end = threading.Event()
    thread = threading.Thread(target=end.wait, args=(20,))

    async def main() -> None:
        thread.start()
        await wait_endlessly()

    deadlock_of(main, virtual_loop())

    assert thread.is_alive()  # the loop did not wait for its end
    end.set()
    thread.join()


def test_the_error_survives_pickling() -> None:
    """The error can be pickled, because test runners send errors between processes."""
    error = VirtualDeadlockError(1.5, "", ["Task-1 in main"])

    assert str(pickle.loads(pickle.dumps(error))) == str(error)
