"""Websocket clients that answer pings; some also send messages that the server echoes.

Run as `python -m benchmarks.workloads.websocket_clients TASK` with TASK as JSON. Prints "ready"
when all connections are open, starts when it reads a line, and prints its figures as JSON. Frames
follow RFC 6455, are shorter than 126 bytes, and are masked with zeros.
"""

import asyncio
import json
import random
import sys
from dataclasses import dataclass
from time import perf_counter
from typing import cast

from benchmarks._descriptors import connections_allowed
from benchmarks._loops import loops_here, run_on
from benchmarks._quantile import quantile

_MILLISECONDS = 1e3
_AT_ONCE = 100  # concurrent handshakes
_PATIENCE = 30.0  # seconds allowed for the remaining echoes
_TEXT, _CLOSE, _PING, _PONG = 0x81, 0x88, 0x89, 0x8A  # first bytes of unfragmented frames
_MASK = bytes(4)
_GOING_AWAY = (1001).to_bytes(2)
TURN_SECONDS = 0.001
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class WebsocketTask:
    """The task of the client process.

    Attributes:
        port: The port of the server on the loopback address.
        connections: Number of connections.
        rate: Total number of messages per second.
        seconds: Duration of sending messages.
    """

    port: int
    connections: int
    rate: float
    seconds: float


@dataclass(slots=True)
class Counts:
    """The counts of received frames."""

    pings: int = 0
    latencies: list[float] | None = None  # of echoes, once the measurement has started


class WebsocketClient(asyncio.Protocol):
    """One connection."""

    def __init__(self, counts: Counts) -> None:
        self.counts = counts
        self.received: bytes = b""
        self.is_open: bool = False
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Request a websocket."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(HANDSHAKE)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail if the websocket was not opened."""
        self.closed.set_result(None)
        if not self.opened.done():
            self.opened.set_exception(exc or ConnectionError("the server closed the connection"))

    def send_message(self) -> None:
        """Send the time as a message to be echoed."""
        now = repr(perf_counter()).encode()
        self.transport.write(bytes((_TEXT, 0x80 | len(now))) + _MASK + now)

    def close(self) -> None:
        """Send a close frame."""
        self.transport.write(bytes((_CLOSE, 0x82)) + _MASK + _GOING_AWAY)

    def data_received(self, data: bytes) -> None:
        """Answer pings, and record the latency of echoes."""
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


async def _connect(task: WebsocketTask, counts: Counts) -> list[WebsocketClient]:
    loop = asyncio.get_running_loop()
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one() -> WebsocketClient:
        async with gate:
            _, client = await loop.create_connection(
                lambda: WebsocketClient(counts), "127.0.0.1", task.port
            )
            await client.opened
            return client

    return list(await asyncio.gather(*(one() for _ in range(task.connections))))


async def run(task: WebsocketTask) -> None:
    """Connect, wait for a line, send messages, and print the figures."""
    connections_allowed()
    counts = Counts()
    clients = await _connect(task, counts)
    random.Random(1).shuffle(clients)
    print("ready", flush=True)
    # In a thread, so that the loop keeps answering pings.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    latencies = counts.latencies = []
    pings, began, sent = counts.pings, perf_counter(), 0
    while (elapsed := perf_counter() - began) < task.seconds:
        for place in range(sent, int(elapsed * task.rate)):
            clients[place % len(clients)].send_message()
            sent += 1
        await asyncio.sleep(TURN_SECONDS)
    last_moment = perf_counter() + _PATIENCE
    while len(latencies) < sent and perf_counter() < last_moment:  # noqa: ASYNC110 - simpler
        await asyncio.sleep(TURN_SECONDS)
    seconds = perf_counter() - began
    pings = counts.pings - pings
    served = pings + len(latencies)
    figures = {
        "pings": pings,
        "served": served,
        "per_second": served / seconds,
        "p99_ms": quantile(sorted(latencies), 0.99) * _MILLISECONDS,
        "lost": sent - len(latencies),
    }
    print(json.dumps(figures), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for client in clients:
        client.close()
    await asyncio.wait([client.closed for client in clients], timeout=_PATIENCE)


if __name__ == "__main__":
    run_on(loops_here()[-1], run(WebsocketTask(**json.loads(sys.argv[1]))))
