"""Thousands of real clients of `aiowheel serve`: `make test-load`, which prints figures."""

import asyncio
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx
import psutil
import pytest

from .conftest import Process, process, waiters_reach

pytestmark = [pytest.mark.load, pytest.mark.realtime, pytest.mark.timeout(120)]

CLIENTS = 5_000
TOPICS = 500


@dataclass
class Client(asyncio.Protocol):
    """One connection with one poll; stores the answer and the time of its end."""

    answers: "Crowd"
    received: bytearray = field(default_factory=bytearray)
    transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, so that a test can abort it."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Store the answer when its body has the length in its headers."""
        self.received += data
        head, found, body = bytes(self.received).partition(b"\r\n\r\n")
        if found and len(body) == int(head.lower().partition(b"content-length: ")[2].split()[0]):
            self.received.clear()
            self.answers.note(int(head.split()[1]))

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection as closed."""
        self.answers.open -= 1
        if not self.answers.open:
            self.answers.closed.set()


@dataclass
class Crowd:
    """Clients that each poll over a connection of their own."""

    server: Process
    clients: list[Client] = field(default_factory=list[Client])
    statuses: list[int] = field(default_factory=list[int])
    open: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, status: int) -> None:
        """Store the status of one answer."""
        self.statuses.append(status)
        if len(self.statuses) == len(self.clients):
            self.answered.set()

    async def connect(self, count: int) -> None:
        """Connect and poll; return once the service counts all of them as waiting."""
        loop = asyncio.get_running_loop()
        for number in range(count):
            _, client = await loop.create_connection(
                lambda: Client(self), "127.0.0.1", self.server.port
            )
            self.clients.append(client)
            self.open += 1
            path = f"/topics/t{number % TOPICS}?timeout=100"
            assert client.transport is not None
            client.transport.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await waiters_reach(self.server, count)

    def hang_up(self) -> None:
        """Abort all connections at once."""
        for client in self.clients:
            assert client.transport is not None
            client.transport.abort()


def say(text: str) -> None:
    """Print a figure, which is the purpose of this run."""
    sys.stdout.write(f"\n{text}\n")


async def test_every_waiter_is_answered_at_sigterm() -> None:
    """5,000 polls get 503, and the process ends with 0 in less than 5 seconds."""
    with process() as server:
        crowd = Crowd(server)
        await crowd.connect(CLIENTS)

        begun = time.perf_counter()
        code, errors = await asyncio.to_thread(server.stop)
        took = time.perf_counter() - begun
        await crowd.closed.wait()

    say(
        f"SIGTERM with {CLIENTS:,} waiters: {len(crowd.statuses):,} answers, "
        f"exit code {code} after {took:.2f} s"
    )
    assert crowd.statuses == [503] * CLIENTS
    assert (code, errors) == (0, "")
    assert took < 5


async def test_clients_that_all_hang_up_leave_nothing() -> None:
    """After 5,000 connection resets, nothing is pending after a second, and nothing is logged."""
    with process() as server:
        crowd = Crowd(server)
        await crowd.connect(CLIENTS)

        begun = time.perf_counter()
        crowd.hang_up()
        await waiters_reach(server, 0)
        took = time.perf_counter() - begun
        metrics = (await asyncio.to_thread(httpx.get, f"{server.url}/metrics")).text
        code, errors = await asyncio.to_thread(server.stop)

    say(f"{CLIENTS:,} clients hung up: nothing pended after {took:.2f} s")
    assert 'aiowheel_purgatory_pending{name="topics"} 0.0' in metrics
    assert 'aiowheel_purgatory_watched{name="topics"} 0.0' in metrics
    assert took < 1
    assert (code, errors) == (0, "")


async def test_a_flood_of_topics_is_refused() -> None:
    """Of 100,000 names, those above the limit of topics are refused; memory stays bounded."""
    with process("--max-topics", "1000") as server:
        before = psutil.Process(server.process.pid).memory_info().rss
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        statuses: Counter[bytes] = Counter()
        for first in range(0, 100_000, 500):
            for number in range(first, first + 500):
                writer.write(
                    b"POST /topics/t%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"
                    % number
                )
            for _ in range(500):
                head = await reader.readuntil(b"\r\n\r\n")
                statuses[head.split(b" ", 2)[1]] += 1
                await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split()[0]))
        grown = psutil.Process(server.process.pid).memory_info().rss - before
        writer.close()
        code, errors = await asyncio.to_thread(server.stop)

    say(f"100,000 names of topics: {dict(statuses)}, {grown / 2**20:.0f} MiB more")
    assert statuses == {b"201": 1_000, b"429": 99_000}
    assert grown < 50 * 2**20
    assert (code, errors) == (0, "")


async def test_a_message_reaches_all_who_wait() -> None:
    """With 5,000 polls of 500 topics and one message each, each client gets exactly one answer."""
    with process() as server:
        crowd = Crowd(server)
        await crowd.connect(CLIENTS)

        begun = time.perf_counter()
        async with httpx.AsyncClient() as client:
            for number in range(TOPICS):
                await client.post(f"{server.url}/topics/t{number}", content="news")
        await crowd.answered.wait()
        took = time.perf_counter() - begun
        await asyncio.sleep(0.2)
        crowd.hang_up()

    say(f"{TOPICS} messages to {CLIENTS:,} waiters: all answered after {took:.2f} s")
    assert crowd.statuses == [200] * CLIENTS
