"""Thousands of simultaneous disconnects on a real uvicorn.

`python tests/integrations/disconnects.py 5000`: each client sends a poll and waits; then all close
their connections. All operations must be cancelled within a second, and neither the server nor the
loop may log an error.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aiowheel import Purgatory
from aiowheel.abc import FinishedOperation, Instrument
from aiowheel.integrations.asgi import get_purgatory, long_poll, wheel_lifespan

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
GIVE_UP = 60.0  #: seconds after which remaining operations are reported


@dataclass
class Disconnects:
    """The result of a run.

    Attributes:
        waited: Pending operations at the same time, and links to their keys.
        left: The same numbers after all clients had disconnected.
        seconds: Time from the first close until nothing was pending, at most `GIVE_UP`.
        cpu: CPU seconds of this process in that time, including the clients.
        logged: Errors and warnings of all loggers.
    """

    waited: tuple[int, int]
    left: tuple[int, int]
    seconds: float
    cpu: float
    logged: list[str]


class Polls(Instrument):
    """An application whose polls have no timeout.

    Its events are set when all polls have arrived, and when all have ended.
    """

    def __init__(self, clients: int) -> None:
        self.clients = clients
        self.come = self.gone = 0
        self.all_there = asyncio.Event()
        self.all_gone = asyncio.Event()
        self.purgatory: Purgatory
        self.app = Starlette(
            routes=[Route("/", self.poll)], lifespan=wheel_lifespan(instruments=[self])
        )

    async def poll(self, request: Request) -> Response:
        """Wait under two keys."""
        self.purgatory = await get_purgatory(request)
        self.come += 1
        if self.come == self.clients:
            asyncio.get_running_loop().call_soon(self.all_there.set)  # after the poll is watched
        keys = ["news", id(request)]
        return await long_poll(request, self.purgatory, keys=keys, ready=lambda: None, timeout=300)

    def operation_finished(self, purgatory: str, operation: FinishedOperation) -> None:
        """Count the finished operations."""
        self.gone += 1
        if self.gone == self.clients:
            self.all_gone.set()

    def waiting(self) -> tuple[int, int]:
        """Return the numbers of pending operations and of links to their keys."""
        return len(self.purgatory), self.purgatory.watched


async def disconnect(clients: int) -> Disconnects:
    """Serve *clients* polls, disconnect all clients, and measure the cleanup."""
    polls = Polls(clients)
    listener = socket.create_server(("127.0.0.1", 0), backlog=4_096)
    server = uvicorn.Server(uvicorn.Config(polls.app, log_config=None, access_log=False))
    with warnings_logged() as logged:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        connections = await connect(listener.getsockname()[1], clients)
        await polls.all_there.wait()
        waited = polls.waiting()
        started, ran = time.perf_counter(), time.process_time()
        for connection in connections:
            connection.close()
        await asyncio.wait([asyncio.ensure_future(polls.all_gone.wait())], timeout=GIVE_UP)
        seconds, cpu = time.perf_counter() - started, time.process_time() - ran
        left = polls.waiting()
        server.should_exit = True
        await serving
    return Disconnects(waited, left, seconds, cpu, logged)


async def connect(port: int, clients: int) -> list[socket.socket]:
    """Open that many connections with a poll each.

    They are plain sockets, so that only the server uses the loop.
    """
    loop = asyncio.get_running_loop()
    connections: list[socket.socket] = []
    for _ in range(clients):
        connection = socket.socket()
        connection.setblocking(False)
        await loop.sock_connect(connection, ("127.0.0.1", port))
        await loop.sock_sendall(connection, REQUEST)
        connections.append(connection)
    return connections


@contextmanager
def warnings_logged() -> Generator[list[str]]:
    """Collect the log records of the block, from warnings on."""
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger().removeHandler(handler)


def main() -> int:
    """Print a report on a run with the number of clients from the command line."""
    clients = int(sys.argv[1])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 3 * clients + 100), hard))
    result = asyncio.run(disconnect(clients))
    sys.stdout.write(f"{result}\n")
    return 0 if result.left == (0, 0) and result.seconds < 1 and not result.logged else 1


if __name__ == "__main__":
    sys.exit(main())
