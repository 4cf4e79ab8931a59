"""Sockets, jobs, child processes and threads are real; a virtual loop waits for them."""

import asyncio
import math
import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from aiowheel.testing import VirtualClock, VirtualClockEventLoop, _loop

pytestmark = pytest.mark.one_build

PATIENT = pytest.mark.virtual_time(patience=math.inf)
HASTY = pytest.mark.virtual_time(patience=0)


@asynccontextmanager
async def connection() -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a TCP connection to a server that answers lines in capitals."""
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())
        await close(writer)
        ended.set()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        yield reader, writer
        await close(writer)
        await ended.wait()


async def close(writer: asyncio.StreamWriter) -> None:
    """Close the writer, and wait until it is closed."""
    writer.close()
    await writer.wait_closed()


@PATIENT
async def test_sockets_work_while_time_stands_still(virtual_clock: VirtualClock) -> None:
    """A request under a timeout is answered, and no virtual time has passed."""
    async with connection() as (reader, writer), asyncio.timeout(30):
        for _ in range(10):
            writer.write(b"ping\n")
            assert await reader.readline() == b"PING\n"

    assert virtual_clock.time() == 0.0


@HASTY
async def test_a_read_from_a_silent_peer_times_out(virtual_clock: VirtualClock) -> None:
    """An open socket does not stop the clock after the patience has passed."""
    async with connection() as (reader, _):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readline(), 30)

    assert virtual_clock.time() == 30.0


@pytest.mark.virtual_time(patience=1e12)
async def test_patience_may_be_longer_than_a_wait_of_the_system(
    virtual_clock: VirtualClock,
) -> None:
    """The systems count milliseconds in 32 bits."""
    async with connection() as (reader, writer):
        asyncio.get_running_loop().call_soon(writer.write, b"line\n")
        async with asyncio.timeout(30):
            assert await reader.readline() == b"LINE\n"

    assert virtual_clock.time() == 0.0


@PATIENT
async def test_a_job_is_waited_for(virtual_clock: VirtualClock) -> None:
    """The job ends before its virtual timeout, however long it takes in real time."""
    release = threading.Event()
    asyncio.get_running_loop().call_soon(release.set)

    assert await asyncio.wait_for(asyncio.to_thread(release.wait), 1)
    assert virtual_clock.time() == 0.0


@HASTY
async def test_a_job_that_takes_too_long_times_out(virtual_clock: VirtualClock) -> None:
    """Without patience the clock jumps over a running job."""
    release = threading.Event()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.to_thread(release.wait), 30)
    release.set()

    assert virtual_clock.time() == 30.0


@PATIENT
async def test_a_child_process_is_waited_for(virtual_clock: VirtualClock) -> None:
    """The clock waits for a child process with pipes and for one without."""
    program = [sys.executable, "-c", "print(6 * 7)"]
    async with asyncio.timeout(30):
        child = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.PIPE)
        assert (await child.communicate())[0].split() == [b"42"]
        quiet = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.DEVNULL)
        assert await quiet.wait() == 0

    assert virtual_clock.time() == 0.0


def test_a_child_process_without_pipes_is_no_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop waits for it without a limit, as for a socket."""
    monkeypatch.setattr(_loop, "_GRACE_OF_NEW_THREADS", 0)
    monkeypatch.setattr(_loop, "_GRACE", 0)

    async def main() -> list[int]:
        program = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
        line = await asyncio.create_subprocess_shell(f"{sys.executable} -c ''")
        return [await program.wait(), await line.wait()]

    with asyncio.Runner(loop_factory=lambda: VirtualClockEventLoop(patience=0)) as runner:
        assert runner.run(main()) == [0, 0]


@PATIENT
async def test_a_thread_wakes_the_loop(virtual_clock: VirtualClock) -> None:
    """The clock waits for a thread that was started after the loop."""
    loop = virtual_clock.loop
    called = asyncio.Event()
    go_on = threading.Event()

    def call() -> None:
        go_on.wait()
        loop.call_soon_threadsafe(called.set)

    thread = threading.Thread(target=call)
    thread.start()
    loop.call_soon(go_on.set)
    await asyncio.wait_for(called.wait(), 30)
    thread.join()

    assert virtual_clock.time() == 0.0


@PATIENT
async def test_a_thread_may_end_while_the_loop_looks_for_it(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its call comes after the loop has polled, and the thread has ended before the look."""
    loop, called = virtual_clock.loop, asyncio.Event()

    def may_come() -> bool:
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(called.set,))
        thread.start()
        thread.join()
        monkeypatch.undo()
        return loop._outside.may_come()

    monkeypatch.setattr(loop._outside, "may_come", may_come)
    await asyncio.wait_for(called.wait(), 30)

    assert virtual_clock.time() == 0.0


@PATIENT
async def test_a_recorder_does_not_hold_the_clock(
    virtual_clock: VirtualClock, tmp_path: Path
) -> None:
    """Its thread writes files and calls no loop."""
    trace = pytest.importorskip("aiowheel.trace")

    with trace.TraceRecorder(tmp_path):
        await asyncio.sleep(3600)

    assert virtual_clock.time() == 3600.0


@pytest.mark.posix
@PATIENT
async def test_a_signal_is_waited_for(virtual_clock: VirtualClock) -> None:
    """The clock waits for a signal from when its handler is added until it is removed."""
    loop = virtual_clock.loop
    came = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, came.set)
    later = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGUSR1))
    later.daemon = True  # the thread ends at once in any case
    later.start()

    await asyncio.wait_for(came.wait(), 30)
    later.join()
    assert virtual_clock.time() == 0.0

    assert loop.remove_signal_handler(signal.SIGUSR1)
    await asyncio.sleep(30)
    assert virtual_clock.time() == 30.0


class Interrupted(selectors.SelectSelector):
    """A selector that calls *handler* instead of blocking, like a signal, and returns no events."""

    handler: Callable[[], object] = int

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Poll."""
        if timeout:
            self.handler()
        return super().select(0)


@pytest.mark.posix
def test_an_interrupt_ends_a_task_that_advances_the_clock() -> None:
    """Ctrl-C cancels the task during the loop's wait, and the loop must survive it."""
    selector = Interrupted()
    with asyncio.Runner(loop_factory=lambda: VirtualClockEventLoop(selector)) as runner:

        async def advance() -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualClockEventLoop)
            loop.add_signal_handler(signal.SIGUSR1, int)  # an event source to wait for
            task = asyncio.current_task()
            assert task is not None
            selector.handler = task.cancel
            try:
                await loop.advance(30)
            finally:
                loop.remove_signal_handler(signal.SIGUSR1)

        with pytest.raises(asyncio.CancelledError):
            runner.run(advance())


@PATIENT
async def test_idle_workers_of_an_executor_do_not_hold_the_clock(
    virtual_clock: VirtualClock,
) -> None:
    """With infinite patience, the clock waits for jobs but not for idle workers."""
    await asyncio.to_thread(int)

    await asyncio.sleep(3600)

    assert virtual_clock.time() == 3600.0


@PATIENT
async def test_idle_workers_of_anyio_do_not_hold_the_clock(virtual_clock: VirtualClock) -> None:
    """The clock waits for the job of such a worker, but not for the worker after it."""
    release = threading.Event()
    asyncio.get_running_loop().call_soon(release.set)

    assert await asyncio.wait_for(anyio.to_thread.run_sync(release.wait), 1)
    assert virtual_clock.time() == 0.0

    await asyncio.sleep(3600)
    assert virtual_clock.time() == 3600.0


def test_a_loop_on_another_thread_waits_for_calls(
    virtual_loop: Callable[..., asyncio.AbstractEventLoop],
) -> None:
    """A loop without work on another thread waits, as any loop does."""
    loop = virtual_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    asked = asyncio.run_coroutine_threadsafe(asyncio.sleep(3600, "slept"), loop)

    assert asked.result(timeout=30) == "slept"
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    assert loop.time() == 3600.0


@pytest.mark.realtime
def test_the_end_of_a_run_waits_for_running_jobs(
    virtual_loop: Callable[..., asyncio.AbstractEventLoop],
) -> None:
    """The timeout of asyncio for jobs does not apply, because virtual time would end it at once."""
    ended = threading.Event()

    def job() -> None:
        time.sleep(0.05)  # longer than the loop's patience
        ended.set()

    async def leave_a_job_behind() -> None:
        asyncio.get_running_loop().run_in_executor(None, job)

    with asyncio.Runner(loop_factory=lambda: virtual_loop(patience=0.0)) as runner:
        runner.run(leave_a_job_behind())

    assert ended.is_set()
