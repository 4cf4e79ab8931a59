"""Limits on streams and protocols, over real sockets and on a virtual clock."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import ClassVar
from unittest.mock import Mock

import pytest

from aiowheel import Timer, TimerClosedError
from aiowheel._types import Delay
from aiowheel.integrations.connections import Limit, LimitedProtocol, idle_guard, touching
from aiowheel.testing import ManualTimer, VirtualClock

# A socket pair delivers data at once, so that the virtual clock need not wait for it.
VIRTUAL = pytest.mark.virtual_time(patience=0)
Until = Callable[[Callable[[], object]], Awaitable[None]]


@asynccontextmanager
async def connection() -> AsyncGenerator[
    tuple[asyncio.StreamReader, asyncio.StreamWriter, socket.socket]
]:
    """Return a stream and the other end of its connection."""
    own, peer = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=own)
    try:
        yield reader, writer, peer
    finally:
        peer.close()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@VIRTUAL
async def test_a_silent_connection_is_closed(virtual_clock: VirtualClock) -> None:
    """Reads return the end of the stream, and the guard has the exceeded limit."""
    async with connection() as (reader, writer, _), idle_guard(writer, 30) as guard:
        assert await reader.read(100) == b""
        assert virtual_clock.time() == pytest.approx(30, abs=0.002)

    assert guard.exceeded is Limit.IDLE


@VIRTUAL
async def test_the_peer_sees_the_end(virtual_clock: VirtualClock) -> None:
    """The socket is closed before the block ends."""
    async with connection() as (reader, writer, peer):
        async with idle_guard(writer, 30):
            await reader.read(100)

        assert writer.transport.is_closing()
        assert peer.recv(1) == b""


@VIRTUAL
async def test_a_long_line_that_comes_slowly_is_no_silence(virtual_clock: VirtualClock) -> None:
    """Every chunk ends the silence, not only a whole message."""
    async with (
        Timer() as timer,
        connection() as (reader, writer, peer),
        idle_guard(writer, 30, timer=timer) as guard,
    ):
        line = asyncio.create_task(reader.readline())
        for byte in b"slow\n":
            await asyncio.sleep(29)
            peer.send(bytes([byte]))

        assert await line == b"slow\n"
        assert virtual_clock.time() == pytest.approx(5 * 29)
        counts = timer.statistics()
        assert (counts.scheduled, counts.rescheduled) == (1, 5)  # one timer, one touch per chunk
    assert guard.exceeded is None


@VIRTUAL
async def test_a_first_byte_before_the_block_counts(virtual_clock: VirtualClock) -> None:
    """On uvloop, data of a fast client arrives before the handler of its connection begins."""
    async with connection() as (reader, writer, peer):
        peer.send(b"early\n")
        await asyncio.sleep(1)
        async with idle_guard(writer, 30, first_byte=5) as guard:
            assert await reader.read(100) == b"early\n"
            assert await reader.read(100) == b""
            assert virtual_clock.time() == pytest.approx(31, abs=0.002)

    assert guard.exceeded is Limit.IDLE


@VIRTUAL
async def test_first_byte_and_total_are_limits_of_their_own(virtual_clock: VirtualClock) -> None:
    """The guard names the exceeded limit."""
    async with (
        connection() as (reader, writer, _),
        idle_guard(writer, 30, first_byte=5) as guard,
    ):
        assert await reader.read(100) == b""
    assert (guard.exceeded, round(virtual_clock.time())) == (Limit.FIRST_BYTE, 5)

    async with (
        connection() as (reader, writer, peer),
        idle_guard(writer, 30, total=60) as guard,
    ):
        talking = asyncio.create_task(talk(peer, 20))
        while await reader.read(100):
            pass
        talking.cancel()
    assert (guard.exceeded, round(virtual_clock.time())) == (Limit.TOTAL, 65)


async def talk(peer: socket.socket, pause: float) -> None:
    """Send a byte now and after each pause, until the connection ends."""
    with suppress(BrokenPipeError):
        while True:
            peer.send(b"a")
            await asyncio.sleep(pause)


@VIRTUAL
async def test_what_is_sent_counts_when_touched(virtual_clock: VirtualClock) -> None:
    """A client that reads a long answer sends nothing, but is not idle."""
    async with connection() as (_, writer, _), idle_guard(writer, 30) as guard:
        for _ in range(10):
            await asyncio.sleep(20)
            writer.write(b"news")
            guard.touch()

    assert guard.exceeded is None


@VIRTUAL
async def test_a_peer_that_does_not_read_cannot_delay_the_close() -> None:
    """Unsent data is dropped."""
    async with connection() as (reader, writer, _), idle_guard(writer, 30) as guard:
        writer.write(b"x" * 10_000_000)
        await writer.drain()  # until the guard aborts the connection
        assert await reader.read() == b""
        with pytest.raises(ConnectionResetError):
            await writer.drain()

    assert guard.exceeded is Limit.IDLE


@VIRTUAL
async def test_a_close_in_the_block_ends_at_a_limit(virtual_clock: VirtualClock) -> None:
    """`wait_closed` waits for a peer that has sent its end and does not read."""
    async with connection() as (reader, writer, peer), idle_guard(writer, 30) as guard:
        peer.shutdown(socket.SHUT_WR)
        writer.write(b"x" * 10_000_000)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        assert virtual_clock.time() == pytest.approx(30, abs=0.002)

    assert guard.exceeded is Limit.IDLE


@VIRTUAL
@pytest.mark.parametrize("how", ["returns", "fails", "is cancelled"])
async def test_nothing_is_left_after_the_block(how: str) -> None:
    """No timer remains; the connection is open and has its earlier protocol."""
    async with Timer() as timer, connection() as (reader, writer, peer):
        inner = writer.transport.get_protocol()

        async def work() -> None:
            async with idle_guard(writer, 30, total=60, timer=timer):
                if how == "fails":
                    raise ZeroDivisionError
                if how == "is cancelled":
                    await asyncio.sleep(1000)

        task = asyncio.create_task(work())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])

        assert len(timer) == 0
        assert writer.transport.get_protocol() is inner
        peer.send(b"a")
        assert await reader.read(1) == b"a"


@VIRTUAL
@pytest.mark.parametrize("when", ["before", "in the same turn", "while it closes"])
async def test_a_connection_that_is_lost_meanwhile_is_no_error(when: str) -> None:
    """It may be lost before the limit, at the limit, or during the close."""
    async with connection() as (reader, writer, peer):
        async with idle_guard(writer, 30):
            writer.write(b"unread")
            if when == "before":
                peer.close()
                with pytest.raises(ConnectionResetError):  # unread data causes a reset
                    await reader.read()
                await asyncio.sleep(60)
            elif when == "in the same turn":
                asyncio.get_running_loop().call_later(30.001, peer.close)
                await asyncio.sleep(60)
            else:
                writer.close()
                await asyncio.sleep(60)

        assert writer.transport.is_closing()


def without_certificates(side: int) -> ssl.SSLContext:
    """Return TLS contexts that encrypt without certificates."""
    context = ssl.SSLContext(side)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # the last version with such ciphers
    try:
        context.set_ciphers("AECDH:@SECLEVEL=0")
    except ssl.SSLError:
        pytest.skip("this OpenSSL has no ciphers without certificates")
    return context


@pytest.mark.both_loops
async def test_a_tls_connection_may_be_closed_twice_in_the_block() -> None:
    """Its transport then has no protocol that could be restored."""
    ended: asyncio.Queue[object] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with idle_guard(writer, 30) as guard:
                await reader.readline()
                writer.close()
                writer.close()
            ended.put_nowait(guard.exceeded)
        except Exception as error:
            ended.put_nowait(error)

    server_side = without_certificates(ssl.PROTOCOL_TLS_SERVER)
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_side) as server:
        host, port = server.sockets[0].getsockname()
        client_side = without_certificates(ssl.PROTOCOL_TLS_CLIENT)
        reader, writer = await asyncio.open_connection(host, port, ssl=client_side)
        writer.write(b"hello\n")

        assert await ended.get() is None
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def test_a_closed_timer_refuses_the_block() -> None:
    """The connection is unchanged."""
    async with connection() as (_, writer, _):
        inner = writer.transport.get_protocol()
        async with Timer() as timer:
            pass

        with pytest.raises(TimerClosedError):
            async with idle_guard(writer, 30, timer=timer):
                pytest.fail("not entered")

        assert writer.transport.get_protocol() is inner


async def test_a_timeout_out_of_range_is_refused() -> None:
    """The error names the argument."""
    async with connection() as (_, writer, _):
        with pytest.raises(ValueError, match=r"^timeout must be more than 0, got 0$"):
            async with idle_guard(writer, 0):
                pytest.fail("not entered")


@pytest.mark.both_loops
async def test_a_touched_stream_works_as_before() -> None:
    """Chunks, backpressure in both directions and the end of the stream pass through."""
    chunks = 0

    def count() -> None:
        nonlocal chunks
        chunks += 1

    own, peer = socket.socketpair()
    theirs, answer = await asyncio.open_connection(sock=peer)
    reader, writer = await asyncio.open_connection(sock=own)
    size = 3_000_000
    with touching(writer.transport, count):
        sent = asyncio.create_task(send(answer, size))
        await asyncio.sleep(0)
        assert len(await reader.readexactly(size)) == size
        echoed = asyncio.create_task(theirs.readexactly(size))
        await send(writer, size)
        assert len(await echoed) == size
        await sent
        answer.write_eof()
        assert await reader.read() == b""
        assert chunks > 10
    writer.close()
    answer.close()
    await writer.wait_closed()
    await answer.wait_closed()


async def send(writer: asyncio.StreamWriter, size: int) -> None:
    """Send *size* bytes, which is more than the buffers hold."""
    for _ in range(size // 100_000):
        writer.write(b"x" * 100_000)
        await writer.drain()


async def test_a_buffered_protocol_has_no_chunks() -> None:
    """The error names the protocol."""

    class Buffered(asyncio.BufferedProtocol):
        def get_buffer(self, sizehint: int) -> bytearray:
            return bytearray(100)

    own, peer = socket.socketpair()
    transport, _ = await asyncio.get_running_loop().create_connection(Buffered, sock=own)

    with pytest.raises(TypeError, match="BufferedProtocol"), touching(transport, print):
        pytest.fail("not entered")
    transport.close()
    peer.close()
    await asyncio.sleep(0)


async def test_a_datagram_protocol_has_no_chunks() -> None:
    """It would lose every datagram to a protocol without `datagram_received`."""
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
    )

    with pytest.raises(TypeError, match="DatagramProtocol"), touching(transport, print):
        pytest.fail("not entered")
    transport.close()
    await asyncio.sleep(0)


def test_a_connection_that_is_closed_is_not_touched() -> None:
    """The transport of a TLS connection that was closed twice cannot name its protocol."""
    transport = Mock(asyncio.Transport)
    transport.is_closing.return_value = True
    transport.get_protocol.side_effect = AttributeError

    with touching(transport, print):
        pass

    assert not transport.set_protocol.called


async def tell() -> None:
    """A coroutine function, where a plain function is required."""


async def test_a_touch_that_is_a_coroutine_function_is_refused() -> None:
    """The connection is unchanged."""
    async with connection() as (_, writer, _):
        inner = writer.transport.get_protocol()

        with (
            pytest.raises(TypeError, match=r"^touch must be a plain function, .*create_task"),
            touching(writer.transport, tell),
        ):
            pytest.fail("not entered")

        assert writer.transport.get_protocol() is inner


@pytest.mark.parametrize(
    "kind", [asyncio.BufferedProtocol, asyncio.DatagramProtocol, asyncio.SubprocessProtocol]
)
def test_a_protocol_without_chunks_cannot_be_limited(kind: type[asyncio.BaseProtocol]) -> None:
    """An active connection would seem silent."""
    with pytest.raises(TypeError, match=f"must not be a {kind.__name__}, "):
        type("Limited", (LimitedProtocol, kind), {})


def test_a_base_class_gets_its_options() -> None:
    """`LimitedProtocol` passes the arguments of a class statement on."""
    names: list[str] = []

    class Named:
        def __init_subclass__(cls, *, name: str) -> None:
            names.append(name)

    class Limited(LimitedProtocol, Named, name="line"):  # pyright: ignore[reportUnusedClass]
        pass

    assert names == ["line"]


@VIRTUAL
async def test_without_a_timeout_a_silent_stream_stays_open() -> None:
    """None means no timeout."""
    async with connection() as (_, writer, _), idle_guard(writer, None, total=None) as guard:
        await asyncio.sleep(1e6)

    assert guard.exceeded is None


@pytest.mark.parametrize("hook", ["limit_exceeded", "send_heartbeat"])
def test_a_hook_that_is_a_coroutine_function_is_refused(hook: str) -> None:
    """The class definition raises, because nothing would await it."""

    async def coroutine_function(self: LimitedProtocol, *_: object) -> None: ...

    with pytest.raises(TypeError, match=f"^{hook} must be a plain function, .*create_task"):
        type("Awaiting", (LimitedProtocol,), {hook: coroutine_function})


class Pinged(LimitedProtocol):
    """A protocol that pings a silent peer and records its calls with their times."""

    idle_timeout = 60
    heartbeat_interval: "Delay | None" = 20

    def __init__(self) -> None:
        self.log: list[tuple[int, str]] = []
        self.lost = asyncio.get_running_loop().create_future()

    def send_heartbeat(self) -> None:
        """Send a ping."""
        self.note("ping")
        self.transport.write(b"ping\n")

    def limit_exceeded(self, limit: Limit) -> None:
        """Record the limit."""
        self.note(limit)
        super().limit_exceeded(limit)

    def connection_lost(self, exc: Exception | None) -> None:
        """Record the end."""
        super().connection_lost(exc)
        self.lost.set_result(None)

    def note(self, what: str) -> None:
        """Record an event with the time."""
        self.log.append((round(asyncio.get_running_loop().time()), what))


@VIRTUAL
async def test_a_protocol_pings_and_closes_a_silent_peer_with_one_timer() -> None:
    """An answer starts the count again; the connection never has two pending timers."""
    own, peer = socket.socketpair()
    pending: list[int] = []
    loop = asyncio.get_running_loop()
    async with Timer() as timer:

        class OnTimer(Pinged):
            total_timeout = 1000

            def note(self, what: str) -> None:
                super().note(what)
                pending.append(len(timer))

        OnTimer.timer = timer
        _, protocol = await loop.connect_accepted_socket(OnTimer, own)
        pending.append(len(timer))
        await asyncio.sleep(45)
        assert peer.recv(100) == b"ping\nping\n"
        peer.send(b"pong\n")
        await asyncio.sleep(1)
        pending.append(len(timer))
        await protocol.lost

        pings = [(time, "ping") for time in (20, 40, 65, 85)]
        assert protocol.log == [*pings, (105, Limit.IDLE)]
        assert max(pending) == 1
        assert len(timer) == 0
    peer.close()


@VIRTUAL
async def test_a_peer_that_answers_pings_stays_connected() -> None:
    """Each pong is received data."""
    own, peer = socket.socketpair()
    async with Timer() as timer:
        on_timer = type("OnTimer", (Pinged,), {"timer": timer})
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.connect_accepted_socket(on_timer, own)
        for _ in range(10):
            await asyncio.sleep(25)
            peer.send(b"pong\n")
        await asyncio.sleep(1)
        transport.close()
        await protocol.lost

        assert protocol.log == [(25 * turn + 20, "ping") for turn in range(10)]
        assert len(timer) == 0
    peer.close()


async def refused(kind: type[LimitedProtocol]) -> object:
    """Return the error that the loop reports for a protocol of *kind*; abort the connection."""
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    own, peer = socket.socketpair()
    transport, _ = await loop.connect_accepted_socket(kind, own)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert transport.is_closing()
    peer.close()
    return reported[0]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("idle_timeout", 0, "idle_timeout must be more than 0, got 0"),
        ("first_byte_timeout", -1, "first_byte_timeout must be more than 0, got -1"),
        ("total_timeout", 0, "total_timeout must be more than 0, got 0"),
        ("heartbeat_interval", 0, "heartbeat_interval must be more than 0, got 0"),
        (
            "heartbeat_interval",
            60,
            "heartbeat_interval must be less than idle_timeout, which is 60, got 60",
        ),
    ],
)
async def test_an_attribute_out_of_range_is_named(name: str, value: object, text: str) -> None:
    """The error has the attribute's name, and the connection is aborted."""
    error = await refused(type("Wrong", (Pinged,), {name: value}))

    assert isinstance(error, ValueError)
    assert str(error) == text


async def test_a_heartbeat_without_its_hook_is_refused() -> None:
    """The error names the method to override."""

    class Mute(LimitedProtocol):
        heartbeat_interval = 20

    error = await refused(Mute)

    assert isinstance(error, TypeError)
    assert str(error) == "Mute must override send_heartbeat to use heartbeat_interval"


class Echo(LimitedProtocol):
    """A protocol that sends back received data and records its end."""

    idle_timeout = 30
    first_byte_timeout = 5
    total_timeout = 100
    limits: ClassVar[list[Limit]] = []

    def __init__(self) -> None:
        self.lost = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        """Send the data back."""
        super().data_received(data)
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Record the time of the end."""
        super().connection_lost(exc)
        self.lost.set_result(asyncio.get_running_loop().time())

    def limit_exceeded(self, limit: Limit) -> None:
        """Record the limit."""
        self.limits.append(limit)
        super().limit_exceeded(limit)


@VIRTUAL
@pytest.mark.parametrize(
    ("chunks", "limit", "end"),
    [(0, Limit.FIRST_BYTE, 5), (2, Limit.IDLE, 36), (99, Limit.TOTAL, 100)],
)
async def test_a_protocol_keeps_the_same_limits(chunks: int, limit: Limit, end: int) -> None:
    """First byte, silence and total apply at their times; no timer remains."""
    own, peer = socket.socketpair()
    Echo.limits.clear()
    async with Timer() as timer:
        Echo.timer = timer
        loop = asyncio.get_running_loop()
        _, protocol = await loop.connect_accepted_socket(Echo, own)
        for _ in range(chunks):
            await asyncio.sleep(3)
            with suppress(BrokenPipeError):  # the limit closed the connection before
                peer.send(b"a")

        assert round(await protocol.lost) == end
        assert Echo.limits == [limit]
        assert len(timer) == 0
    peer.close()


@VIRTUAL
async def test_a_protocol_that_ends_by_itself_leaves_no_timer() -> None:
    """The peer closes or resets the connection."""
    async with Timer() as timer:
        Echo.timer = timer
        for reset in (False, True):
            own, peer = socket.socketpair()
            loop = asyncio.get_running_loop()
            _, protocol = await loop.connect_accepted_socket(Echo, own)
            if reset:
                peer.send(b"a" * 1000)  # the peer has gone before the echo
            peer.close()
            await protocol.lost

        assert len(timer) == 0


async def test_it_can_be_mixed_into_another_protocol() -> None:
    """All three calls reach the other protocol."""
    calls: asyncio.Queue[object] = asyncio.Queue()

    class Theirs(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            calls.put_nowait(transport)

        def data_received(self, data: bytes) -> None:
            calls.put_nowait(data)

        def connection_lost(self, exc: Exception | None) -> None:
            calls.put_nowait(exc)

    class Limited(LimitedProtocol, Theirs):
        idle_timeout = 30

    own, peer = socket.socketpair()
    transport, protocol = await asyncio.get_running_loop().connect_accepted_socket(Limited, own)
    assert await calls.get() is protocol.transport is transport
    peer.send(b"data")
    assert await calls.get() == b"data"
    peer.close()
    assert await calls.get() is None


async def test_a_protocol_on_a_closed_timer_is_aborted() -> None:
    """A connection without limits must not stay; the loop reports the error."""
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    async with Timer() as timer:
        pass
    Echo.timer = timer
    own, peer = socket.socketpair()

    _, protocol = await loop.connect_accepted_socket(Echo, own)
    await protocol.lost

    assert [type(error) for error in reported] == [TimerClosedError]
    assert peer.recv(1) == b""
    peer.close()


async def test_a_protocol_behind_one_that_was_refused_hears_nothing_of_the_connection() -> None:
    """A protocol may rely on `connection_made` in the other two calls."""
    calls: list[str] = []
    lost = asyncio.get_running_loop().create_future()

    class Theirs(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            calls.append("made")

        def connection_lost(self, exc: Exception | None) -> None:
            calls.append("lost")

    class Limited(LimitedProtocol, Theirs):
        idle_timeout = 0

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            lost.set_result(None)

    error = await refused(Limited)
    await lost

    assert isinstance(error, ValueError)
    assert calls == []


@VIRTUAL
async def test_a_second_connection_made_starts_the_limits_again() -> None:
    """A TLS upgrade may call it with the new transport; the earlier limits end."""
    own, peer = socket.socketpair()
    loop = asyncio.get_running_loop()
    Echo.limits.clear()
    async with Timer() as timer:
        Echo.timer = timer
        transport, protocol = await loop.connect_accepted_socket(Echo, own)
        await asyncio.sleep(3)
        protocol.connection_made(transport)

        assert len(timer) == 1
        assert round(await protocol.lost) == 3 + 5
        assert Echo.limits == [Limit.FIRST_BYTE]
        assert len(timer) == 0
    peer.close()


async def test_a_second_connection_made_may_be_refused() -> None:
    """The connection is aborted, and no timer remains."""
    own, peer = socket.socketpair()
    loop = asyncio.get_running_loop()
    async with Timer() as timer:
        Echo.timer = timer
        transport, protocol = await loop.connect_accepted_socket(Echo, own)
        protocol.idle_timeout = 0
        with pytest.raises(ValueError, match="idle_timeout"):
            protocol.connection_made(transport)
        await protocol.lost

        assert len(timer) == 0
    peer.close()


class Upgraded(Pinged):
    """A protocol on a manual timer that counts its chunks."""

    def __init__(self) -> None:
        super().__init__()
        self.timer = self.clock = ManualTimer()
        self.chunks: asyncio.Queue[bytes] = asyncio.Queue()

    def data_received(self, data: bytes) -> None:
        """Keep the chunk."""
        super().data_received(data)
        self.chunks.put_nowait(data)


@asynccontextmanager
async def accepted(
    protocol: asyncio.Protocol, *, tls: bool = False
) -> AsyncGenerator[asyncio.StreamWriter]:
    """Yield the client of a server whose one connection has *protocol*."""
    loop = asyncio.get_running_loop()
    server_side = without_certificates(ssl.PROTOCOL_TLS_SERVER) if tls else None
    client_side = without_certificates(ssl.PROTOCOL_TLS_CLIENT) if tls else None
    server = await loop.create_server(lambda: protocol, "127.0.0.1", 0, ssl=server_side)
    async with server:
        host, port = server.sockets[0].getsockname()
        _, writer = await asyncio.open_connection(host, port, ssl=client_side)
        try:
            yield writer
        finally:
            writer.transport.abort()


@pytest.mark.both_loops
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("heartbeat", [None, 20])
async def test_a_protocol_that_takes_over_has_no_limits(
    *, tls: bool, heartbeat: int | None
) -> None:
    """The former protocol gets no data any more, so that the connection would seem silent."""
    before, after = Upgraded(), Upgraded()
    before.heartbeat_interval = heartbeat
    async with accepted(before, tls=tls) as client:
        client.write(b"upgrade")
        await before.chunks.get()
        before.transport.set_protocol(after)
        before.clock.advance(1000)

        assert before.log == []
        assert len(before.clock) == 0
        assert not before.transport.is_closing()
        client.write(b"data")
        assert await after.chunks.get() == b"data"


@pytest.mark.both_loops
@pytest.mark.parametrize("tls", [False, True])
async def test_a_touched_protocol_keeps_its_limits(*, tls: bool) -> None:
    """`touching` passes the data on to it."""
    protocol = Upgraded()
    async with accepted(protocol, tls=tls) as client:
        client.write(b"hello")
        await protocol.chunks.get()
        with touching(protocol.transport, print), touching(protocol.transport, print):
            protocol.clock.advance(61)

        assert [what for _, what in protocol.log] == ["ping", "ping", Limit.IDLE]
        await protocol.lost


@pytest.mark.both_loops
@pytest.mark.parametrize("told", [False, True])
async def test_a_protocol_keeps_its_limits_after_start_tls(*, told: bool) -> None:
    """The former transport has a protocol of the loop then, which decrypts."""
    protocol = Upgraded()
    protocol.heartbeat_interval = None  # its pings would not be encrypted
    loop = asyncio.get_running_loop()
    async with accepted(protocol) as client:
        client.write(b"STARTTLS")
        await protocol.chunks.get()
        client_side = without_certificates(ssl.PROTOCOL_TLS_CLIENT)
        server_side = without_certificates(ssl.PROTOCOL_TLS_SERVER)
        upgrade = loop.start_tls(protocol.transport, protocol, server_side, server_side=True)
        transport, _ = await asyncio.gather(upgrade, client.start_tls(client_side))
        assert transport is not None
        if told:
            protocol.transport = transport
        client.write(b"hello")
        assert await protocol.chunks.get() == b"hello"
        protocol.clock.advance(61)

        assert protocol.log[-1][1] is Limit.IDLE
        await protocol.lost


async def test_a_protocol_keeps_its_limits_while_a_file_is_sent(
    tmp_path: Path, until: Until
) -> None:
    """On asyncio, another one replaces the protocol of a TLS connection for that time."""
    file = tmp_path / "large"
    file.write_bytes(bytes(10_000_000))
    protocol = Upgraded()
    async with accepted(protocol, tls=True) as client:
        client.write(b"GET")
        await protocol.chunks.get()
        with file.open("rb") as source:
            sending = asyncio.create_task(
                asyncio.get_running_loop().sendfile(protocol.transport, source)
            )
            await until(lambda: protocol.transport.get_protocol() is not protocol)
            protocol.clock.advance(61)

            assert protocol.log[-1][1] is Limit.IDLE
            with pytest.raises(ConnectionError):
                await sending


async def test_a_protocol_behind_another_one_keeps_its_limits() -> None:
    """The transport does not know a protocol to which another one passes data."""
    inner = Upgraded()

    class Outer(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            inner.connection_made(transport)

        def data_received(self, data: bytes) -> None:
            inner.data_received(data)

        def connection_lost(self, exc: Exception | None) -> None:
            inner.connection_lost(exc)

    async with accepted(Outer()) as client:
        client.write(b"hello")
        await inner.chunks.get()
        inner.clock.advance(61)

        assert [what for _, what in inner.log] == ["ping", "ping", Limit.IDLE]
        await inner.lost


@pytest.mark.both_loops
async def test_a_pipe_for_reading_is_closed_at_a_limit() -> None:
    """It has nothing to flush, and its transport cannot abort."""
    protocol = Upgraded()
    protocol.heartbeat_interval = None
    loop = asyncio.get_running_loop()
    reading, writing = os.pipe()
    await loop.connect_read_pipe(lambda: protocol, os.fdopen(reading, "rb", 0))
    os.write(writing, b"data")
    assert await protocol.chunks.get() == b"data"
    protocol.clock.advance(61)

    await protocol.lost
    assert protocol.transport.is_closing()
    os.close(writing)


async def test_a_pipe_for_reading_is_closed_if_its_limits_are_refused() -> None:
    """The loop reports the error of the limit, and no other one."""
    protocol = Upgraded()
    protocol.idle_timeout = 0
    loop = asyncio.get_running_loop()
    reported: list[object] = []
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    reading, writing = os.pipe()
    await loop.connect_read_pipe(lambda: protocol, os.fdopen(reading, "rb", 0))

    await protocol.lost
    assert [type(error) for error in reported] == [ValueError]
    os.close(writing)


@VIRTUAL
async def test_a_protocol_may_end_the_silence_itself() -> None:
    """`touch` counts like received data, for example for data that was sent."""
    own, peer = socket.socketpair()
    loop = asyncio.get_running_loop()
    _, protocol = await loop.connect_accepted_socket(Pinged, own)
    await asyncio.sleep(15)
    protocol.touch()
    await protocol.lost

    assert protocol.log == [(35, "ping"), (55, "ping"), (75, Limit.IDLE)]
    protocol.touch()  # nothing, after the end
    peer.close()


async def test_a_protocol_that_was_set_in_the_block_stays() -> None:
    """For example after an upgrade to websockets."""
    own, peer = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=own)
    transport, later = writer.transport, asyncio.Protocol()
    with touching(transport, lambda: None):
        transport.set_protocol(later)

    assert transport.get_protocol() is later
    transport.abort()
    peer.close()
