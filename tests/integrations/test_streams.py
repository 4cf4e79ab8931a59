"""Limits on streams and protocols, over real sockets and on a virtual clock."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import ClassVar

import pytest

from aiowheel import Timer, TimerClosedError
from aiowheel.integrations.connections import Limit, LimitedProtocol, idle_guard, touching
from aiowheel.testing import VirtualClock

# A socket pair has its data at once: no patience is needed.
VIRTUAL = pytest.mark.virtual_time(patience=0)


@asynccontextmanager
async def connection() -> AsyncGenerator[
    tuple[asyncio.StreamReader, asyncio.StreamWriter, socket.socket]
]:
    """A stream and the other end of its connection."""
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
    """Whoever reads gets the end of the stream, and the guard knows why."""
    async with connection() as (reader, writer, _), idle_guard(writer, 30) as guard:
        assert await reader.read(100) == b""
        assert virtual_clock.time() == pytest.approx(30, abs=0.002)

    assert guard.exceeded is Limit.IDLE


@VIRTUAL
async def test_the_peer_sees_the_end(virtual_clock: VirtualClock) -> None:
    """The socket is closed when the block is over, not some time later."""
    async with connection() as (reader, writer, peer):
        async with idle_guard(writer, 30):
            await reader.read(100)

        assert writer.transport.is_closing()
        assert peer.recv(1) == b""


@VIRTUAL
async def test_a_long_line_that_comes_slowly_is_no_silence(virtual_clock: VirtualClock) -> None:
    """Every piece counts, not only whole messages; nobody has to touch."""
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
        assert (counts.scheduled, counts.rescheduled) == (1, 5)  # one timer, one touch a chunk
    assert guard.exceeded is None


@VIRTUAL
async def test_first_byte_and_total_are_limits_of_their_own(virtual_clock: VirtualClock) -> None:
    """Each is told by its name."""
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
    """Send a byte now and after every pause, until nobody is there."""
    with suppress(BrokenPipeError):
        while True:
            peer.send(b"a")
            await asyncio.sleep(pause)


@VIRTUAL
async def test_what_is_sent_counts_when_touched(virtual_clock: VirtualClock) -> None:
    """A client that listens to a long answer is silent, but not idle."""
    async with connection() as (_, writer, _), idle_guard(writer, 30) as guard:
        for _ in range(10):
            await asyncio.sleep(20)
            writer.write(b"news")
            guard.touch()

    assert guard.exceeded is None


@VIRTUAL
async def test_a_peer_that_does_not_read_cannot_hold_the_close_up() -> None:
    """What is still to be flushed is given up."""
    async with connection() as (reader, writer, _), idle_guard(writer, 30) as guard:
        writer.write(b"x" * 10_000_000)
        await writer.drain()  # until the guard ends it
        assert await reader.read() == b""
        with pytest.raises(ConnectionResetError):
            await writer.drain()

    assert guard.exceeded is Limit.IDLE


@VIRTUAL
@pytest.mark.parametrize("how", ["returns", "fails", "is cancelled"])
async def test_nothing_is_left_after_the_block(how: str) -> None:
    """No timer, and the connection is the stream's own again and still open."""
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
    """Lost before the limit, at the limit, or while it is being closed."""
    async with connection() as (reader, writer, peer):
        async with idle_guard(writer, 30):
            writer.write(b"unread")
            if when == "before":
                peer.close()
                with pytest.raises(ConnectionResetError):  # something was left unread
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
    """TLS for a test: encrypted, and nobody shows who they are."""
    context = ssl.SSLContext(side)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # the last that has such ciphers
    try:
        context.set_ciphers("AECDH:@SECLEVEL=0")
    except ssl.SSLError:
        pytest.skip("this OpenSSL has no ciphers without certificates")
    return context


@pytest.mark.both_loops
async def test_a_tls_connection_may_be_closed_twice_in_the_block() -> None:
    """Its transport knows no protocol any more by then: there is nothing to give back."""
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
    """And the connection is as it was."""
    async with connection() as (_, writer, _):
        inner = writer.transport.get_protocol()
        async with Timer() as timer:
            pass

        with pytest.raises(TimerClosedError):
            async with idle_guard(writer, 30, timer=timer):
                pytest.fail("not entered")

        assert writer.transport.get_protocol() is inner


async def test_a_timeout_out_of_range_is_refused() -> None:
    """Its name is that of the stream's limit."""
    async with connection() as (_, writer, _):
        with pytest.raises(ValueError, match="must be more than 0, got 0"):
            async with idle_guard(writer, 0):
                pytest.fail("not entered")


@pytest.mark.both_loops
async def test_a_touched_stream_works_as_before() -> None:
    """Chunks, backpressure both ways and the end of the stream pass through."""
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
    """More than the buffers hold."""
    for _ in range(size // 100_000):
        writer.write(b"x" * 100_000)
        await writer.drain()


async def test_a_buffered_protocol_has_no_chunks() -> None:
    """Refused by name."""

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


def test_a_buffered_protocol_cannot_be_limited() -> None:
    """It receives no chunks either: a busy connection would be closed as a silent one."""
    with pytest.raises(TypeError, match="BufferedProtocol"):

        class Buffered(LimitedProtocol, asyncio.BufferedProtocol):  # pyright: ignore[reportUnusedClass]
            pass


class Echo(LimitedProtocol):
    """Sends back what it gets; notes how it ended."""

    idle_timeout = 30
    first_byte_timeout = 5
    total_timeout = 100
    limits: ClassVar[list[Limit]] = []

    def __init__(self) -> None:
        self.lost = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        """Send it back."""
        super().data_received(data)
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note when."""
        super().connection_lost(exc)
        self.lost.set_result(asyncio.get_running_loop().time())

    def limit_exceeded(self, limit: Limit) -> None:
        """Note which."""
        self.limits.append(limit)
        super().limit_exceeded(limit)


@VIRTUAL
@pytest.mark.parametrize(
    ("chunks", "limit", "end"),
    [(0, Limit.FIRST_BYTE, 5), (2, Limit.IDLE, 36), (99, Limit.TOTAL, 100)],
)
async def test_a_protocol_keeps_the_same_limits(chunks: int, limit: Limit, end: int) -> None:
    """First byte, silence and total, each at its own time; nothing is left in the timer."""
    own, peer = socket.socketpair()
    Echo.limits.clear()
    async with Timer() as timer:
        Echo.timer = timer
        loop = asyncio.get_running_loop()
        _, protocol = await loop.connect_accepted_socket(Echo, own)
        for _ in range(chunks):
            await asyncio.sleep(3)
            with suppress(BrokenPipeError):  # the limit came first
                peer.send(b"a")

        assert round(await protocol.lost) == end
        assert Echo.limits == [limit]
        assert len(timer) == 0
    peer.close()


@VIRTUAL
async def test_a_protocol_that_ends_by_itself_leaves_no_timer() -> None:
    """Whether the peer closes or resets."""
    async with Timer() as timer:
        Echo.timer = timer
        for reset in (False, True):
            own, peer = socket.socketpair()
            loop = asyncio.get_running_loop()
            _, protocol = await loop.connect_accepted_socket(Echo, own)
            if reset:
                peer.send(b"a" * 1000)  # the echo finds nobody
            peer.close()
            await protocol.lost

        assert len(timer) == 0


async def test_it_is_a_mixin_for_a_protocol_that_knows_nothing_of_it() -> None:
    """All three calls reach the other one."""
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
    """Without limits it would stay for ever; the loop reports the error."""
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
