"""The clients of the long polls, and who publishes: one process, one loop. Rank 5.

Run as `python -m aiowheel.bench.workloads.longpoll_clients TASK`, TASK being JSON. Each line on
stdin begins the next stage: poll, publish, end; what was found out is a line of JSON.
"""

import asyncio
import json
import random
import statistics
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter, process_time
from typing import cast

from aiowheel.bench._descriptors import connections_allowed
from aiowheel.bench._loops import loops_here, run_on
from aiowheel.bench.workloads.longpoll_server import END_OF_HEAD, parse, unparse

_CONNECTING_AT_ONCE = 100
_TURN_SECONDS = 0.001
_PATIENCE = 10.0  # seconds after the last event before who had no answer counts as lost


@dataclass(frozen=True, slots=True)
class Audience:
    """The clients, the topics they wait for, and the rate of events.

    Attributes:
        port: Of the server.
        clients: How many.
        topics: How many.
        keys: Topics a client waits for.
        rate: Events a second on all topics together.
        events: In all.
    """

    port: int
    clients: int
    topics: int
    keys: int
    rate: float
    events: int


@dataclass(slots=True)
class Ledger:
    """What was published when, and what came of it."""

    published: dict[int, "array[float]"]  # by topic: the moments of its versions 1, 2, ...
    latencies: "array[float]" = field(default_factory=lambda: array("d"))
    twice: int = 0  # answers without a request, or without news
    last_answer: float = 0.0


class Client(asyncio.Protocol):
    """Polls again as soon as it has been answered."""

    def __init__(self, ledger: Ledger, topics: list[int]) -> None:
        self.seen: dict[int, int] = dict.fromkeys(topics, 0)
        self._ledger = ledger
        self._asked = False
        self._rest = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where requests go."""
        self._transport = cast(asyncio.Transport, transport)

    def poll(self) -> None:
        """Ask for what comes after what was seen."""
        self._asked = True
        self._transport.write(
            f"GET /?{unparse(self.seen)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        """Take an answer down and ask again."""
        now = perf_counter()
        self._rest += data
        head, whole, body = self._rest.partition(END_OF_HEAD)
        _, _, length = head.partition(b"Content-Length: ")
        if not whole or len(body) < int(length or 0):
            return
        self._rest = b""
        ledger = self._ledger
        news = parse(body.decode()) if body else {}
        if not self._asked or any(v <= self.seen[topic] for topic, v in news.items()):
            ledger.twice += 1
        for topic, version in news.items():
            # The oldest of what is told has waited longest.
            moment = ledger.published[topic][self.seen[topic]]
            ledger.latencies.append(now - moment)
            self.seen[topic] = version
        ledger.last_answer = now
        self.poll()


class Publisher(asyncio.Protocol):
    """Publishes without waiting for the answers, which it counts."""

    def __init__(self, ledger: Ledger) -> None:
        self.accepted: int = 0
        self._ledger = ledger
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where requests go."""
        self._transport = cast(asyncio.Transport, transport)

    def publish(self, topic: int) -> None:
        """Note the moment and tell the server."""
        self._ledger.published[topic].append(perf_counter())
        self._transport.write(f"POST /?{topic} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        """Count."""
        self.accepted += data.count(END_OF_HEAD)


async def run(audience: Audience) -> None:
    """Connect, then do a stage for each line on stdin; the loop stands still in between."""
    connections_allowed()
    ledger = Ledger({topic: array("d") for topic in range(audience.topics)})
    clients = await _connect(audience, ledger)
    loop = asyncio.get_running_loop()
    _, publisher = await loop.create_connection(
        lambda: Publisher(ledger), "127.0.0.1", audience.port
    )
    _next_stage("connected")
    for client in clients:
        client.poll()
    _next_stage("polling")
    _next_stage(json.dumps(await _publish(audience, ledger, clients, publisher)))


def _next_stage(told: str) -> None:
    print(told, flush=True)
    sys.stdin.readline()


async def _connect(audience: Audience, ledger: Ledger) -> list[Client]:
    loop = asyncio.get_running_loop()
    gate = asyncio.Semaphore(_CONNECTING_AT_ONCE)
    stride = max(1, audience.topics // audience.keys)

    async def connect(number: int) -> Client:
        topics = [(number + key * stride) % audience.topics for key in range(audience.keys)]
        async with gate:
            _, client = await loop.create_connection(
                lambda: Client(ledger, topics), "127.0.0.1", audience.port
            )
        return client

    return await asyncio.gather(*(connect(number) for number in range(audience.clients)))


def _topics_in_turn(audience: Audience) -> Iterator[int]:
    """In random order, and no topic again before all others had their turn."""
    topics = list(range(audience.topics))
    random.Random(1).shuffle(topics)
    while True:
        yield from topics


async def _publish(
    audience: Audience, ledger: Ledger, clients: list[Client], publisher: Publisher
) -> dict[str, float]:
    topics = _topics_in_turn(audience)
    cpu, began = process_time(), perf_counter()
    sent = 0
    while sent < audience.events:
        due = min(int((perf_counter() - began) * audience.rate) + 1, audience.events)
        for topic in islice(topics, due - sent):
            publisher.publish(topic)
        sent = due
        await asyncio.sleep(_TURN_SECONDS)
    ended = perf_counter()
    in_time = len(ledger.latencies)
    last_moment = ended + _PATIENCE
    while _waiting_for_news(ledger, clients) and perf_counter() < last_moment:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    cpu = process_time() - cpu
    expected = audience.events * audience.clients * audience.keys / audience.topics
    cuts = statistics.quantiles(ledger.latencies, n=1000, method="inclusive")
    return {
        "published": sent / (ended - began),
        "in_time_percent": in_time / expected * 100,
        "answers": len(ledger.latencies),
        "p50_ms": cuts[499] * 1e3,
        "p99_ms": cuts[989] * 1e3,
        "max_ms": max(ledger.latencies) * 1e3,
        "lost": _waiting_for_news(ledger, clients),
        "twice": ledger.twice,
        "refused": sent - publisher.accepted,
        "clients_busy_percent": cpu / (perf_counter() - began) * 100,
    }


def _waiting_for_news(ledger: Ledger, clients: list[Client]) -> int:
    """Clients that have not received everything that was published."""
    return sum(
        any(len(ledger.published[topic]) > version for topic, version in client.seen.items())
        for client in clients
    )


if __name__ == "__main__":
    run_on(loops_here()[-1], run(Audience(**json.loads(sys.argv[1]))))
