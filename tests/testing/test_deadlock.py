"""A virtual loop that could only wait for ever says so, and who waits where."""

import asyncio
import math
import pickle
import threading
from collections.abc import Callable, Coroutine

import pytest

import aiowheel
from aiowheel.testing import VirtualClockEventLoop, VirtualDeadlockError

pytestmark = pytest.mark.one_build

Loops = Callable[..., VirtualClockEventLoop]


@pytest.fixture(autouse=True)
def alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process without other threads; tests elsewhere leave some behind."""
    if "thread" not in request.node.name:
        monkeypatch.setattr(threading, "active_count", lambda: 1)


def deadlock_of(
    main: Callable[[], Coroutine[None, None, object]], loop: VirtualClockEventLoop
) -> VirtualDeadlockError:
    """The error that ends *main*, after which the loop closes in peace."""
    with (
        asyncio.Runner(loop_factory=lambda: loop) as runner,
        pytest.raises(VirtualDeadlockError) as caught,
    ):
        runner.run(main())
    return caught.value


async def wait_in_vain() -> None:
    """Nobody sets this event."""
    await asyncio.Event().wait()


async def main_and_worker() -> None:
    """Two tasks, each waiting somewhere else."""
    queue: asyncio.Queue[None] = asyncio.Queue()
    async with asyncio.TaskGroup() as group:
        group.create_task(queue.get(), name="getter")
        await asyncio.sleep(12.5)
        await wait_in_vain()


def test_the_error_names_the_tasks_and_their_lines(virtual_loop: Loops) -> None:
    """The innermost line of the caller's own code, and the time on the clock."""
    error = deadlock_of(main_and_worker, virtual_loop())

    lines = sorted(error.waiting)
    assert len(lines) == 2
    assert "in wait_in_vain, " in lines[0]
    assert lines[0].endswith(": await asyncio.Event().wait()")
    assert "in Queue.get, " in lines[1]
    assert str(error).startswith("deadlock at 12.5 s: no callback is ready")
    assert "waiting tasks: 2\n" in str(error)


def test_a_sleep_for_ever_is_a_deadlock_too(virtual_loop: Loops) -> None:
    """No clock gets to infinity; on the wheel the line is the caller's in both builds."""

    async def sleep_for_ever() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(math.inf))
            await aiowheel.sleep(math.inf)

    error = deadlock_of(sleep_for_ever, virtual_loop())

    assert any(each.endswith(": await aiowheel.sleep(math.inf)") for each in error.waiting)


def test_without_autojump_the_error_says_what_moves_the_clock(virtual_loop: Loops) -> None:
    """Sleeping tasks then wait for somebody to call `advance`."""
    error = deadlock_of(lambda: asyncio.sleep(30), virtual_loop(autojump=False))

    assert "1 timers are armed, the next for 30.0 s" in str(error)
    assert "only advance() moves the clock" in str(error)


def test_a_long_list_is_cut(virtual_loop: Loops) -> None:
    """Twenty tasks show the pattern; the error itself knows all."""

    async def crowd() -> None:
        await asyncio.gather(*(wait_in_vain() for _ in range(30)))

    error = deadlock_of(crowd, virtual_loop())

    assert len(error.waiting) == 31
    assert str(error).endswith("  and 11 more")
    assert len(str(error).splitlines()) == 22


def test_the_loop_can_go_on_after_a_deadlock(virtual_loop: Loops) -> None:
    """The error ended the run, not the loop: what it waits for may still be given."""
    loop = virtual_loop()
    event = asyncio.Event()
    waiting = loop.create_task(event.wait())
    with pytest.raises(VirtualDeadlockError):
        loop.run_until_complete(waiting)

    event.set()

    assert loop.run_until_complete(waiting)


def test_a_loop_with_no_tasks_has_nothing_to_wait_for(virtual_loop: Loops) -> None:
    """`run_forever` with nobody to call it would never return."""
    with pytest.raises(VirtualDeadlockError, match="waiting tasks: 0"):
        virtual_loop().run_forever()


def test_a_thread_is_given_time_before_the_verdict(virtual_loop: Loops) -> None:
    """One that was there before the loop may know it; nothing else tells that it will call."""
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


def test_the_error_survives_pickling() -> None:
    """Test runners send errors between processes."""
    error = VirtualDeadlockError(1.5, "", ["Task-1 in main"])

    assert str(pickle.loads(pickle.dumps(error))) == str(error)
