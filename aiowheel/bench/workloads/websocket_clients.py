"""Websocket clients that answer pings, some of which also send a message to be echoed. Rank 5.

Run as `python -m aiowheel.bench.workloads.websocket_clients TASK`, TASK being JSON. Writes "ready"
when all are connected, begins when it reads a line, and writes its figures as JSON. Frames are
those of RFC 6455, shorter than 126 bytes, masked with zeros.
"""

import asyncio
import json
import random
import sys
from dataclasses import dataclass
from time import perf_counter
from typing import cast

from aiowheel.bench._descriptors import connections_allowed
from aiowheel.bench._loops import loop_factory, loops_here
from aiowheel.bench.workloads.firing import quantile

_MILLISECONDS = 1e3
_AT_ONCE = 100  # handshakes under way
_PATIENCE = 30.0  # seconds for the echoes that are still to come
_TEXT, _CLOSE, _PING, _PONG = 0x81, 0x88, 0x89, 0x8A  # whole frames
_MASK = bytes(4)
_GOING_AWAY = (1001).to_bytes(2)
TURN_SECONDS = 0.001
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class Visitors:
    """What the clients do.

    Attributes:
        port: Of the server, on the loopback address.
        connections: In all.
        rate: Messages a second of all together.
        seconds: How long they send messages.
    """

    port: int
    connections: int
    rate: float
    seconds: float


@dataclass(slots=True)
class Counts:
    """What has come from the server."""

    pings: int = 0
    latencies: list[float] | None = None  # of echoes, once it matters


class Visitor(asyncio.Protocol):
    """One connection."""

    def __init__(self, counts: Counts) -> None:
        self.counts = counts
        self.received = b""
        self.is_open = False
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for a websocket."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(HANDSHAKE)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail if it was not opened."""
        self.closed.set_result(None)
        if not self.opened.done():
            self.opened.set_exception(exc or ConnectionError("the server closed the connection"))

    def say(self) -> None:
        """Send the time, to be echoed."""
        now = repr(perf_counter()).encode()
        self.transport.write(bytes((_TEXT, 0x80 | len(now))) + _MASK + now)

    def close(self) -> None:
        """Ask the server to close the connection."""
        self.transport.write(bytes((_CLOSE, 0x82)) + _MASK + _GOING_AWAY)

    def data_received(self, data: bytes) -> None:
        """Answer pings, and take the latency of echoes."""
        received = self.received + data
        if not self.is_open:
            head, end, received = received.partition(b"\r\n\r\n")
            if not end:
                self.received = head
                return
            assert head.startswith(b"HTTP/1.1 101"), head
            self.is_open = True
            self.opened.set_result(None)
        while len(received) >= 2 and len(received) >= 2 + received[1]:
            kind, length = received[0], received[1]
            payload, received = received[2 : 2 + length], received[2 + length :]
            if kind == _PING:
                self.counts.pings += 1
                self.transport.write(bytes((_PONG, 0x80 | length)) + _MASK + payload)
            elif kind == _TEXT and self.counts.latencies is not None:
                self.counts.latencies.append(perf_counter() - float(payload))
        self.received = received


async def _connect(visitors: Visitors, counts: Counts) -> list[Visitor]:
    loop = asyncio.get_running_loop()
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one() -> Visitor:
        async with gate:
            _, visitor = await loop.create_connection(
                lambda: Visitor(counts), "127.0.0.1", visitors.port
            )
            await visitor.opened
            return visitor

    return list(await asyncio.gather(*(one() for _ in range(visitors.connections))))


async def run(visitors: Visitors) -> None:
    """Connect, wait for the line, talk, and write the figures."""
    connections_allowed()
    counts = Counts()
    everybody = await _connect(visitors, counts)
    random.Random(1).shuffle(everybody)
    print("ready", flush=True)
    # In a thread: pings are answered meanwhile.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    latencies = counts.latencies = []
    pings, began, said = counts.pings, perf_counter(), 0
    while (elapsed := perf_counter() - began) < visitors.seconds:
        for place in range(said, int(elapsed * visitors.rate)):
            everybody[place % len(everybody)].say()
            said += 1
        await asyncio.sleep(TURN_SECONDS)
    last_moment = perf_counter() + _PATIENCE
    while len(latencies) < said and perf_counter() < last_moment:  # noqa: ASYNC110 - simpler
        await asyncio.sleep(TURN_SECONDS)
    seconds = perf_counter() - began
    pings = counts.pings - pings
    served = pings + len(latencies)
    figures = {
        "pings": pings,
        "served": served,
        "per_second": served / seconds,
        "p99_ms": quantile(sorted(latencies), 0.99) * _MILLISECONDS,
        "lost": said - len(latencies),
    }
    print(json.dumps(figures), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for visitor in everybody:
        visitor.close()
    await asyncio.wait([visitor.closed for visitor in everybody], timeout=_PATIENCE)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory(loops_here()[-1])) as runner:
        runner.run(run(Visitors(**json.loads(sys.argv[1]))))
