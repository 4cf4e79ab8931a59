"""The wheel's timers on asyncio's proactor loop, the loop of Windows, here with a fake port."""

from __future__ import annotations

import asyncio
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator

import pytest

import aiowheel
from aiowheel import WheelEventLoopMixin

from .proactor import FakeProactorEventLoop

pytestmark = pytest.mark.realtime  # a proactor loop cannot run on virtual time

TICK = 0.015625  # the resolution of Windows' monotonic clock before Python 3.13


class WheelOnProactor(WheelEventLoopMixin, FakeProactorEventLoop):
    """The loop that `new_event_loop` creates on Windows, on the fake."""


class WithCoarseClock(WheelOnProactor):
    """The same loop with a clock that advances every 15.6 ms."""

    def __init__(self) -> None:
        super().__init__()
        self._clock_resolution = TICK

    def time(self) -> float:
        """Return the time of the last tick."""
        return time.monotonic() // TICK * TICK


@pytest.fixture(params=[WheelOnProactor, WithCoarseClock], ids=["fine", "coarse"])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    """Run coroutines on each loop."""
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner


def test_timers_fire_in_order_and_never_early(runner: asyncio.Runner) -> None:
    """The times are those of the loop's own clock, at any resolution."""
    fired: list[tuple[str, float]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        done = asyncio.Event()
        loop.call_at(begun + 0.03, done.set)
        for name, delay in (("second", 0.02), ("first", 0.01)):
            loop.call_at(
                begun + delay, lambda n, d: fired.append((n, loop.time() - begun - d)), name, delay
            )
        loop.call_at(begun + 0.005, fired.append, ("cancelled", 0.0)).cancel()
        await done.wait()

    runner.run(main())

    assert [name for name, _ in fired] == ["first", "second"]
    assert all(late > -1e-9 for _, late in fired)


def test_a_coarse_clock_makes_no_busy_loop() -> None:
    """While the clock stands still, the loop sleeps at least a millisecond between two polls."""
    with asyncio.Runner(loop_factory=WithCoarseClock) as runner:
        loop = runner.get_loop()
        runner.run(asyncio.sleep(3 * TICK))

        assert isinstance(loop, WithCoarseClock)
        # Two polls for each millisecond of four ticks, and those at start and end.
        assert len(loop.proactor.waits) < 2 * 63 + 30


def test_timeouts_end_blocks_of_asyncio_and_of_aiowheel(runner: asyncio.Runner) -> None:
    """The standard library's timeouts are entries of the wheel; aiowheel's share the loop."""

    async def main() -> list[str]:
        ended: list[str] = []
        for name, block in (("asyncio", asyncio.timeout), ("aiowheel", aiowheel.timeout)):
            try:
                async with block(0.01):
                    await asyncio.Event().wait()
            except TimeoutError:
                ended.append(name)
        return ended

    assert runner.run(main()) == ["asyncio", "aiowheel"]


def test_connections_live_beside_timers(runner: asyncio.Runner) -> None:
    """Streams of asyncio run on the completion port while timers fire."""

    async def echo(reader: StreamReader, writer: StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
        writer.close()

    async def main() -> list[bytes]:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answers: list[bytes] = []
        for number in range(5):
            writer.write(b"%d\n" % number)
            async with asyncio.timeout(60):
                answers.append(await reader.readline())
            await asyncio.sleep(0.001)
        writer.close()
        await writer.wait_closed()
        server.close()
        return answers

    assert runner.run(main()) == [b"0\n", b"1\n", b"2\n", b"3\n", b"4\n"]


def test_another_thread_wakes_the_loop(runner: asyncio.Runner) -> None:
    """A thread calls `call_later_threadsafe` of a timer, and arms a handle on the loop."""

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        done: asyncio.Queue[str] = asyncio.Queue()
        async with aiowheel.Timer() as timer:
            await asyncio.to_thread(timer.call_later_threadsafe, 0.001, done.put_nowait, "timer")
            await asyncio.to_thread(loop.call_later, 0.001, done.put_nowait, "loop")
            async with asyncio.timeout(60):
                return sorted([await done.get(), await done.get()])

    assert runner.run(main()) == ["loop", "timer"]
