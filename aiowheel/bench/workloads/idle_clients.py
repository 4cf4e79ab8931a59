"""The other ends of the connections: plain sockets, no event loop. Rank 5.

Run as `python -m aiowheel.bench.workloads.idle_clients TASK`, TASK being JSON. Says on stdout where
it is: "begin" when the measured messages follow, "end" when they have been sent.
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

from aiowheel.bench._descriptors import connections_allowed

TURN_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class Crowd:
    """What the clients do.

    Attributes:
        silent_port: Where those connect that say nothing.
        silent: How many.
        talking_port: Where those connect that send messages.
        talking: How many.
        rate: Messages a second of all together.
        warm_up: Messages sent before the measured ones.
        messages: The measured ones.
    """

    silent_port: int
    silent: int
    talking_port: int
    talking: int
    rate: float
    warm_up: int
    messages: int


def run(crowd: Crowd) -> None:
    """Connect, talk, and stay until stdin is closed."""
    connections_allowed()
    silent = [_connect(crowd.silent_port) for _ in range(crowd.silent)]
    talking = [_connect(crowd.talking_port) for _ in range(crowd.talking)]
    random.Random(1).shuffle(talking)
    speakers = _round_robin(talking)
    _send(speakers, crowd.warm_up, crowd.rate)
    print("begin", flush=True)
    _send(speakers, crowd.messages, crowd.rate)
    print("end", flush=True)
    sys.stdin.read()
    for connection in (*silent, *talking):
        connection.close()


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _round_robin(talking: list[socket.socket]) -> Iterator[socket.socket]:
    """Each in its turn: all are silent for the same time between two messages."""
    while True:
        yield from talking


def _send(speakers: Iterator[socket.socket], messages: int, rate: float) -> None:
    began = monotonic()
    sent = 0
    while sent < messages:
        due = min(int((monotonic() - began) * rate), messages)
        for connection in islice(speakers, due - sent):
            with suppress(ConnectionError):  # closed for its silence, which the server counts
                connection.send(b"x")
        sent = due
        sleep(TURN_SECONDS)


if __name__ == "__main__":
    run(Crowd(**json.loads(sys.argv[1])))
