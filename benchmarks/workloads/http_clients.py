"""HTTP clients on persistent connections, with one request at a time each.

Run as `python -m benchmarks.workloads.http_clients TASK` with TASK as JSON. Prints "ready" when
all connections are open, starts when it reads a line, and prints its figures as JSON.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import cast

from benchmarks._loops import loops_here, run_on
from benchmarks._quantile import quantile

_MILLISECONDS = 1e3
REQUEST = b"GET / HTTP/1.1\r\nHost: bench\r\nAccept: */*\r\n\r\n"


@dataclass(frozen=True, slots=True)
class HttpTask:
    """The task of the client process.

    Attributes:
        port: The port of the server on the loopback address.
        at_once: Number of connections.
        requests: Total number of requests.
    """

    port: int
    at_once: int
    requests: int


class HttpClient(asyncio.Protocol):
    """One connection, which sends the next request when the last answer is complete."""

    def __init__(self, left: Iterator[int], latencies: list[float]) -> None:
        self.left = left
        self.latencies = latencies
        self.answer: bytes = b""
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sent: float = 0.0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self.transport = cast(asyncio.Transport, transport)

    def send_request(self) -> None:
        """Send the next request, if any is left."""
        if next(self.left, None) is None:
            self.finished.set_result(None)
            return
        self.sent = perf_counter()
        self.transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        """Record the latency of a complete answer."""
        self.answer += data
        head, end, body = self.answer.partition(b"\r\n\r\n")
        if end and len(body) >= _length(head):
            assert head.startswith(b"HTTP/1.1 200"), head
            self.latencies.append(perf_counter() - self.sent)
            self.answer = b""
            self.send_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail if requests are left."""
        if not self.finished.done():
            self.finished.set_exception(exc or ConnectionError("the server closed the connection"))


def _length(head: bytes) -> int:
    """Return the body length in the head of an answer."""
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise ValueError(f"an answer without content-length: {head!r}")


async def run(task: HttpTask) -> None:
    """Connect, wait for a line, send the requests, and print the figures."""
    latencies: list[float] = []
    left = iter(range(task.requests))
    loop = asyncio.get_running_loop()
    connections = [
        (await loop.create_connection(lambda: HttpClient(left, latencies), "127.0.0.1", task.port))[
            1
        ]
        for _ in range(task.at_once)
    ]
    print("ready", flush=True)
    sys.stdin.readline()
    began = perf_counter()
    for connection in connections:
        connection.send_request()
    await asyncio.gather(*(connection.finished for connection in connections))
    seconds = perf_counter() - began
    p99 = quantile(sorted(latencies), 0.99) * _MILLISECONDS
    print(json.dumps({"per_second": task.requests / seconds, "p99_ms": p99}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    run_on(loops_here()[-1], run(HttpTask(**json.loads(sys.argv[1]))))
