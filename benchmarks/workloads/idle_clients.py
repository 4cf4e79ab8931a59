"""The clients of the idle benchmark: plain sockets, no event loop.

Run as `python -m benchmarks.workloads.idle_clients TASK` with TASK as JSON. Prints "begin"
before the measured messages and "end" after them.
"""

import json
import random
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from time import monotonic, sleep

from benchmarks._descriptors import connections_allowed

TURN_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class IdleTask:
    """The task of the client process.

    Attributes:
        silent_port: The port for silent connections.
        silent: Number of silent connections.
        talking_port: The port for connections that send messages.
        talking: Number of connections that send messages.
        rate: Total number of messages per second.
        warm_up: Number of messages sent before the measured ones.
        messages: Number of measured messages.
    """

    silent_port: int
    silent: int
    talking_port: int
    talking: int
    rate: float
    warm_up: int
    messages: int


def run(task: IdleTask) -> None:
    """Connect, send the messages, and stay connected until stdin is closed."""
    connections_allowed()
    silent = [_connect(task.silent_port) for _ in range(task.silent)]
    talking = [_connect(task.talking_port) for _ in range(task.talking)]
    random.Random(1).shuffle(talking)
    speakers = _round_robin(talking)
    _send(speakers, task.warm_up, task.rate)
    print("begin", flush=True)
    _send(speakers, task.messages, task.rate)
    print("end", flush=True)
    sys.stdin.read()
    for connection in (*silent, *talking):
        connection.close()


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _round_robin(talking: list[socket.socket]) -> Iterator[socket.socket]:
    """Yield the connections in turn: all are silent for the same time between two messages."""
    while True:
        yield from talking


def _send(speakers: Iterator[socket.socket], messages: int, rate: float) -> None:
    began = monotonic()
    sent = 0
    while sent < messages:
        due = min(int((monotonic() - began) * rate), messages)
        for connection in islice(speakers, due - sent):
            with suppress(ConnectionError):  # closed because of silence, which the server counts
                connection.send(b"x")
        sent = due
        sleep(TURN_SECONDS)


if __name__ == "__main__":
    run(IdleTask(**json.loads(sys.argv[1])))
