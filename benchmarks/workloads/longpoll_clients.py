"""The long poll clients and the publisher: one process, one loop.

Run as `python -m benchmarks.workloads.longpoll_clients TASK` with TASK as JSON. Each line on
stdin starts the next stage: poll, publish, end. The results are printed as a line of JSON.
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

from benchmarks._descriptors import connections_allowed
from benchmarks._loops import loops_here, run_on
from benchmarks.workloads.longpoll_server import END_OF_HEAD, parse, unparse

_CONNECTING_AT_ONCE = 100
_TURN_SECONDS = 0.001
_PATIENCE = 10.0  # seconds after the last event until a missing answer counts as lost


@dataclass(frozen=True, slots=True)
class PollTask:
    """The task of the client process.

    Attributes:
        port: The port of the server.
        clients: Number of clients.
        topics: Number of topics.
        keys: Number of topics for which a client waits.
        rate: Total number of events per second.
        events: Total number of events.
    """

    port: int
    clients: int
    topics: int
    keys: int
    rate: float
    events: int


@dataclass(slots=True)
class Results:
    """The publish times and the results."""

    published: dict[int, "array[float]"]  # by topic: the times of its versions 1, 2, ...
    latencies: "array[float]" = field(default_factory=lambda: array("d"))
    twice: int = 0  # answers without a request or without a change
    last_answer: float = 0.0


class Client(asyncio.Protocol):
    """A client that polls again as soon as it gets an answer."""

    def __init__(self, results: Results, topics: list[int]) -> None:
        self.seen: dict[int, int] = dict.fromkeys(topics, 0)
        self._results = results
        self._asked = False
        self._rest = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def poll(self) -> None:
        """Request versions later than the seen ones."""
        self._asked = True
        self._transport.write(
            f"GET /?{unparse(self.seen)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        """Record an answer and poll again."""
        now = perf_counter()
        self._rest += data
        head, whole, body = self._rest.partition(END_OF_HEAD)
        _, _, length = head.partition(b"Content-Length: ")
        if not whole or len(body) < int(length or 0):
            return
        self._rest = b""
        results = self._results
        news = parse(body.decode()) if body else {}
        if not self._asked or any(v <= self.seen[topic] for topic, v in news.items()):
            results.twice += 1
        for topic, version in news.items():
            # The oldest event in the answer has waited longest.
            moment = results.published[topic][self.seen[topic]]
            results.latencies.append(now - moment)
            self.seen[topic] = version
        results.last_answer = now
        self.poll()


class Publisher(asyncio.Protocol):
    """A client that publishes without waiting for the answers, but counts them."""

    def __init__(self, results: Results) -> None:
        self.accepted: int = 0
        self._results = results
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def publish(self, topic: int) -> None:
        """Record the time and send the request."""
        self._results.published[topic].append(perf_counter())
        self._transport.write(f"POST /?{topic} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        """Count the answers."""
        self.accepted += data.count(END_OF_HEAD)


async def run(task: PollTask) -> None:
    """Connect, then run a stage for each line on stdin; reading blocks the loop."""
    connections_allowed()
    results = Results({topic: array("d") for topic in range(task.topics)})
    clients = await _connect(task, results)
    loop = asyncio.get_running_loop()
    _, publisher = await loop.create_connection(lambda: Publisher(results), "127.0.0.1", task.port)
    _report("connected")
    for client in clients:
        client.poll()
    _report("polling")
    _report(json.dumps(await _publish(task, results, clients, publisher)))


def _report(line: str) -> None:
    print(line, flush=True)
    sys.stdin.readline()


async def _connect(task: PollTask, results: Results) -> list[Client]:
    loop = asyncio.get_running_loop()
    gate = asyncio.Semaphore(_CONNECTING_AT_ONCE)
    stride = max(1, task.topics // task.keys)

    async def connect(number: int) -> Client:
        topics = [(number + key * stride) % task.topics for key in range(task.keys)]
        async with gate:
            _, client = await loop.create_connection(
                lambda: Client(results, topics), "127.0.0.1", task.port
            )
        return client

    return await asyncio.gather(*(connect(number) for number in range(task.clients)))


def _topics_in_turn(task: PollTask) -> Iterator[int]:
    """Yield topics in random order, each once before any repeats."""
    topics = list(range(task.topics))
    random.Random(1).shuffle(topics)
    while True:
        yield from topics


async def _publish(
    task: PollTask, results: Results, clients: list[Client], publisher: Publisher
) -> dict[str, float]:
    topics = _topics_in_turn(task)
    cpu, began = process_time(), perf_counter()
    sent = 0
    while sent < task.events:
        due = min(int((perf_counter() - began) * task.rate) + 1, task.events)
        for topic in islice(topics, due - sent):
            publisher.publish(topic)
        sent = due
        await asyncio.sleep(_TURN_SECONDS)
    ended = perf_counter()
    in_time = len(results.latencies)
    last_moment = ended + _PATIENCE
    while _waiting_for_news(results, clients) and perf_counter() < last_moment:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    cpu = process_time() - cpu
    expected = task.events * task.clients * task.keys / task.topics
    cuts = statistics.quantiles(results.latencies, n=1000, method="inclusive")
    return {
        "published": sent / (ended - began),
        "in_time_percent": in_time / expected * 100,
        "answers": len(results.latencies),
        "p50_ms": cuts[499] * 1e3,
        "p99_ms": cuts[989] * 1e3,
        "max_ms": max(results.latencies) * 1e3,
        "lost": _waiting_for_news(results, clients),
        "twice": results.twice,
        "refused": sent - publisher.accepted,
        "clients_busy_percent": cpu / (perf_counter() - began) * 100,
    }


def _waiting_for_news(results: Results, clients: list[Client]) -> int:
    """Return the number of clients that have not received all events."""
    return sum(
        any(len(results.published[topic]) > version for topic, version in client.seen.items())
        for client in clients
    )


if __name__ == "__main__":
    run_on(loops_here()[-1], run(PollTask(**json.loads(sys.argv[1]))))
