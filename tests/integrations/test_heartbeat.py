"""Heartbeats: pings to a silent peer, and its end."""

import asyncio
import math
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import websockets.asyncio.client
import websockets.asyncio.server
from hypothesis import given
from hypothesis import strategies as st

from aiowheel import ManualTimer, Timer, TimerClosedError
from aiowheel.integrations.connections import Heartbeat, heartbeat, touching
from aiowheel.testing import VirtualClock


class Peer:
    """The calls of a heartbeat, with their times."""

    def __init__(self, timer: ManualTimer) -> None:
        self.timer = timer
        self.log: list[tuple[int, str]] = []
        self.beat = Heartbeat(self.ping, self.abort, interval=20, timeout=10, timer=timer)

    def ping(self) -> None:
        """Record a ping."""
        self.log.append((round(self.timer.time()), "ping"))

    def abort(self) -> None:
        """Record the end."""
        self.log.append((round(self.timer.time()), "dead"))


@pytest.fixture
def peer(manual_timer: ManualTimer) -> Peer:
    """A peer with a ping after 20 s of silence and a timeout of 10 s."""
    return Peer(manual_timer)


def test_a_silent_peer_gets_one_ping_and_is_dead(peer: Peer) -> None:
    """Nothing follows, and no timer remains."""
    peer.timer.advance(300)

    assert peer.log == [(20, "ping"), (30, "dead")]
    assert len(peer.timer) == 0


def test_an_answer_starts_the_next_interval(peer: Peer) -> None:
    """The answer may come exactly at the timeout."""
    for _ in range(3):
        peer.timer.advance(30)
        peer.beat.seen()
    peer.timer.advance(300)

    assert peer.log == [(20, "ping"), (50, "ping"), (80, "ping"), (110, "ping"), (120, "dead")]


def test_an_active_peer_gets_no_pings(peer: Peer) -> None:
    """Received data shows that the peer is alive."""
    for _ in range(100):
        peer.timer.advance(19)
        peer.beat.seen()

    assert peer.log == []


@given(
    signs=st.lists(st.integers(0, 100), max_size=20),
    interval=st.integers(1, 20),
    timeout=st.integers(1, 20),
)
def test_pings_and_timeouts_match_their_definition(
    signs: list[int], interval: int, timeout: int
) -> None:
    """For random times of received data; data exactly at a limit counts."""
    times = sorted(signs)
    timer = ManualTimer()
    log: list[tuple[int, str]] = []

    def note(what: str) -> Callable[[], None]:
        return lambda: log.append((round(timer.time()), what))

    beat = Heartbeat(note("ping"), note("dead"), interval=interval, timeout=timeout, timer=timer)
    for time in times:
        timer.advance(max(time - timer.time(), 0))
        beat.seen()
    timer.advance(200)

    assert log == by_definition(times, interval, timeout)
    assert len(timer) == 0


def by_definition(signs: list[int], interval: int, timeout: int) -> list[tuple[int, str]]:
    """Return the expected calls for a peer that sends at these times."""
    log: list[tuple[int, str]] = []
    last = 0
    for sign in [*signs, 10**9]:
        if sign > last + interval:
            log.append((last + interval, "ping"))
        if sign > last + interval + timeout:
            log.append((last + interval + timeout, "dead"))
            break
        last = sign
    return log


def test_received_data_makes_no_timer(peer: Peer) -> None:
    """Only the answer to a ping makes one."""
    before = peer.timer.statistics().scheduled
    for _ in range(10_000):
        peer.beat.seen()
        peer.timer.advance(0.1)

    assert peer.timer.statistics().scheduled == before
    assert len(peer.timer) == 1


@pytest.mark.parametrize("after", [0, 25])
def test_a_closed_heartbeat_is_silent(peer: Peer, after: float) -> None:
    """It may be closed before or after a ping; later calls of `seen` and `close` have no effect."""
    peer.timer.advance(after)
    log = peer.log.copy()

    peer.beat.close()
    peer.beat.seen()
    peer.beat.close()
    peer.timer.advance(300)

    assert peer.log == log
    assert len(peer.timer) == 0


@pytest.mark.parametrize("name", ["interval", "timeout"])
@pytest.mark.parametrize("value", [0, -1, math.nan])
def test_times_out_of_range_are_refused(manual_timer: ManualTimer, name: str, value: float) -> None:
    """The error names the argument."""
    times: dict[str, Any] = {"interval": 20, "timeout": 10, name: value}

    with pytest.raises(ValueError, match=f"{name} must"):
        Heartbeat(
            print,
            print,
            interval=times["interval"],
            timeout=times["timeout"],
            timer=manual_timer,
        )
    assert len(manual_timer) == 0


def test_jitter_spreads_the_pings_of_peers(manual_timer: ManualTimer) -> None:
    """Each interval is shorter by a random time, and none is longer."""
    asked: list[float] = []
    for _ in range(100):
        Heartbeat(
            lambda: asked.append(manual_timer.time()),
            lambda: None,
            interval=20,
            timeout=60,
            jitter=10,
            timer=manual_timer,
        )
    for _ in range(2_000):
        manual_timer.advance(0.01)

    assert len(asked) == 100
    assert len({round(each, 2) for each in asked}) > 80
    assert 10 <= min(asked) < 12
    assert 18 < max(asked) <= 20


def test_an_interval_is_a_number(manual_timer: ManualTimer) -> None:
    """None is refused, because there would be no heartbeat."""
    interval: Any = None

    with pytest.raises(TypeError, match=r"^interval must be a number of seconds or a timedelta"):
        Heartbeat(print, print, interval=interval, timeout=10, timer=manual_timer)


def test_without_a_timeout_a_silent_peer_is_not_dead(manual_timer: ManualTimer) -> None:
    """It gets one ping, and the next one after received data."""
    pings: list[int] = []
    beat = Heartbeat(
        lambda: pings.append(round(manual_timer.time())),
        pytest.fail,
        interval=20,
        timeout=None,
        timer=manual_timer,
    )
    manual_timer.advance(1000)
    beat.seen()
    manual_timer.advance(1000)

    assert pings == [20, 1020]


async def tell() -> None:
    """A coroutine function, which `dead` must not be."""


def test_functions_that_cannot_be_called_are_refused(manual_timer: ManualTimer) -> None:
    """The error names the argument; for a coroutine function it also names the remedy."""
    not_callable: Any = 3

    with pytest.raises(TypeError, match=r"^send must be a function, got 3$"):
        Heartbeat(not_callable, print, interval=20, timeout=10, timer=manual_timer)
    with pytest.raises(TypeError, match=r"^dead must be a plain function, got 3$"):
        Heartbeat(print, not_callable, interval=20, timeout=10, timer=manual_timer)
    with pytest.raises(TypeError, match=r"^dead must be a plain function, .*create_task"):
        Heartbeat(print, tell, interval=20, timeout=10, timer=manual_timer)
    assert len(manual_timer) == 0


def test_a_coroutine_that_dead_returns_is_reported(manual_timer: ManualTimer) -> None:
    """The coroutine is closed, because nothing would await it; the heartbeat still ends."""
    Heartbeat(print, lambda: tell(), interval=20, timeout=10, timer=manual_timer)  # noqa: PLW0108

    with pytest.raises(ExceptionGroup) as caught:
        manual_timer.advance(100)

    (error,) = caught.value.exceptions
    assert str(error).startswith("dead must be a plain function, but it returned the coroutine")
    assert len(manual_timer) == 0


@pytest.mark.parametrize(
    ("interval", "jitter"), [(20, -1), (20, 21), (20, math.nan), (math.inf, math.inf)]
)
def test_a_jitter_out_of_range_is_refused(
    manual_timer: ManualTimer, interval: float, jitter: float
) -> None:
    """No timer is armed."""
    with pytest.raises(ValueError, match="jitter must"):
        Heartbeat(print, print, interval=interval, timeout=10, jitter=jitter, timer=manual_timer)
    assert len(manual_timer) == 0


def test_a_ping_that_raises_means_dead(
    manual_timer: ManualTimer, caplog: pytest.LogCaptureFixture
) -> None:
    """`dead` is called at once; an error other than OSError is also a log event."""
    dead: list[float] = []

    def fail(error: Exception) -> Callable[[], None]:
        def send() -> None:
            raise error

        return send

    for error in (ConnectionResetError(), RuntimeError("no such socket")):
        Heartbeat(
            fail(error),
            lambda: dead.append(round(manual_timer.time())),
            interval=20,
            timeout=10,
            timer=manual_timer,
        )
    manual_timer.advance(300)

    assert dead == [20, 20]
    assert len(manual_timer) == 0
    assert [record.getMessage() for record in caplog.records] == [
        "aiowheel.heartbeat_failed error=\"RuntimeError('no such socket')\""
    ]
    exc_info = caplog.records[0].exc_info
    assert exc_info is not None
    assert traceback.extract_tb(exc_info[2])[-1].name == "send"


def test_a_log_that_fails_keeps_no_dead_connection(
    manual_timer: ManualTimer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dead` is called before the event is logged."""
    dead: list[float] = []

    def emit(*_: object, **__: object) -> None:
        raise ArithmeticError

    def send() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("aiowheel.integrations._heartbeat.emit", emit)
    Heartbeat(
        send,
        lambda: dead.append(round(manual_timer.time())),
        interval=20,
        timeout=10,
        timer=manual_timer,
    )

    with pytest.raises(ExceptionGroup) as caught:
        manual_timer.advance(100)

    assert [type(error) for error in caught.value.exceptions] == [ArithmeticError]
    assert (dead, len(manual_timer)) == ([20], 0)


@pytest.mark.virtual_time
async def test_the_ping_may_be_a_coroutine_function(virtual_clock: VirtualClock) -> None:
    """Its error means dead as well, and is not reported as never retrieved."""
    sent: list[float] = []
    dead = asyncio.Event()

    async def send() -> None:
        await asyncio.sleep(1)
        sent.append(round(virtual_clock.time()))
        if len(sent) == 2:
            raise ConnectionResetError

    async with Heartbeat(send, dead.set, interval=20, timeout=10) as beat:
        await asyncio.sleep(25)
        beat.seen()
        await dead.wait()

    assert sent == [21, 46]
    assert round(virtual_clock.time()) == 46


@pytest.mark.virtual_time
async def test_a_ping_that_blocks_is_not_repeated_and_ends_with_the_block() -> None:
    """The peer sends but does not read; it is not dead, and pings do not pile up."""
    questions = ended = 0

    async def send() -> None:
        nonlocal questions, ended
        questions += 1
        try:
            await asyncio.Event().wait()
        finally:
            ended += 1

    async with Heartbeat(send, pytest.fail, interval=20, timeout=10) as beat:
        for _ in range(10):
            await asyncio.sleep(25)
            beat.seen()

    assert (questions, ended) == (1, 1)
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.virtual_time
async def test_a_dead_peer_ends_the_block(virtual_clock: VirtualClock) -> None:
    """The block raises TimeoutError; a block that ends by itself does not, and leaves no timer."""
    async with Timer() as timer:
        with pytest.raises(TimeoutError):
            async with heartbeat(lambda: None, interval=20, timeout=10, timer=timer):
                await asyncio.Event().wait()
        assert round(virtual_clock.time()) == 30

        async with heartbeat(lambda: None, interval=20, timeout=10, timer=timer) as beat:
            await asyncio.sleep(29)
            beat.seen()
            await asyncio.sleep(29)
        with pytest.raises(ZeroDivisionError):
            async with heartbeat(lambda: None, interval=20, timeout=10, timer=timer):
                raise ZeroDivisionError
        assert len(timer) == 0


@pytest.mark.virtual_time
async def test_a_cancelled_block_is_cancelled() -> None:
    """It raises CancelledError and not TimeoutError; no timer remains."""
    async with Timer() as timer:

        async def work() -> None:
            async with heartbeat(lambda: None, interval=20, timeout=10, timer=timer):
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await asyncio.sleep(25)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert len(timer) == 0


async def test_a_closed_timer_has_no_heartbeat() -> None:
    """The error is raised before the block."""
    async with Timer() as timer:
        pass

    with pytest.raises(TimerClosedError):
        async with heartbeat(lambda: None, interval=20, timeout=10, timer=timer):
            pytest.fail("not entered")


@asynccontextmanager
async def websocket_pair(
    *,
    deaf: bool,
) -> AsyncGenerator[websockets.asyncio.client.ClientConnection]:
    """A client and its server, both without the library's own keepalive."""
    over = asyncio.Event()

    async def handle(connection: websockets.asyncio.server.ServerConnection) -> None:
        if deaf:
            connection.transport.pause_reading()
        await over.wait()
        connection.transport.abort()  # no closing handshake, which the peer would not answer

    async with websockets.asyncio.server.serve(
        handle, "127.0.0.1", 0, ping_interval=None
    ) as server:
        port = server.sockets[0].getsockname()[1]
        async with websockets.asyncio.client.connect(
            f"ws://127.0.0.1:{port}", ping_interval=None
        ) as client:
            try:
                yield client
            finally:
                over.set()


@pytest.mark.realtime
async def test_a_websocket_that_answers_pings_lives() -> None:
    """Pongs are received chunks: `touching` sees them, the application does not.

    A second ping is sent only after an answer to the first.
    """
    pings = 0
    third = asyncio.Event()

    async with websocket_pair(deaf=False) as client:

        async def ping() -> None:
            nonlocal pings
            pings += 1
            if pings == 3:
                third.set()
            await client.ping()

        async with heartbeat(ping, interval=0.02, timeout=60) as beat:
            with touching(client.transport, beat.seen):
                await third.wait()

    assert pings >= 3


@pytest.mark.realtime
async def test_a_websocket_that_does_not_answer_is_dead() -> None:
    """It is connected but does not read; the block ends, and so does the connection."""
    async with websocket_pair(deaf=True) as client:
        with pytest.raises(TimeoutError):
            async with heartbeat(client.ping, interval=0.02, timeout=0.02) as beat:
                with touching(client.transport, beat.seen):
                    async for _ in client:
                        pytest.fail("it says nothing")


@pytest.mark.virtual_time
async def test_closing_during_a_ping_is_no_error() -> None:
    """The cancelled coroutine reports nothing to the loop's exception handler."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))

    async with Heartbeat(asyncio.Event().wait, pytest.fail, interval=20, timeout=10):
        await asyncio.sleep(25)
    await asyncio.sleep(0)

    assert reports == []
