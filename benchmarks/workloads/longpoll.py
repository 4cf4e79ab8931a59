"""Long polls over real connections, measured in the server."""

import asyncio
import json
from collections.abc import AsyncGenerator
from functools import partial
from time import monotonic, process_time

from benchmarks._clients import run_clients
from benchmarks._descriptors import connections_allowed
from benchmarks._memory import resident_bytes
from benchmarks._side import Figures
from benchmarks.baselines.long_polls import DESIGNS, LongPolls
from benchmarks.workloads.longpoll_clients import PollTask
from benchmarks.workloads.longpoll_server import HttpConnection

_BACKLOG = 4_096


async def rounds(
    design: str, clients: int, topics: int, keys: int, rate: float, seconds: float
) -> AsyncGenerator[Figures, None]:
    """Let all clients connect and poll, then publish events for *seconds*; anew in each round.

    Memory is that of the process's first round, because later rounds reuse memory.
    """
    connections_allowed()
    while True:
        polls = DESIGNS[design]()
        server = await asyncio.get_running_loop().create_server(
            partial(HttpConnection, polls), "127.0.0.1", 0, backlog=_BACKLOG
        )
        port = server.sockets[0].getsockname()[1]
        task = PollTask(port, clients, topics, keys, rate, max(2, int(rate * seconds)))
        async with server:
            yield await _measure(polls, task)


async def _measure(polls: LongPolls, task: PollTask) -> Figures:
    before = resident_bytes()
    async with run_clients("longpoll_clients", task) as clients:
        await clients.read_line()  # the clients are connected
        connected = resident_bytes()
        clients.start_stage()
        await clients.read_line()  # the clients have sent their polls
        while polls.waiting < task.clients:  # noqa: ASYNC110 - the polls set no event
            await asyncio.sleep(0.01)
        waiting = resident_bytes()
        cpu, wall = process_time(), monotonic()
        clients.start_stage()
        found: Figures = json.loads(await clients.read_line())
        cpu, wall = process_time() - cpu, monotonic() - wall
    while polls.waiting:  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.01)
    return {
        "target": task.rate,
        "cpu_us": cpu / found["answers"] * 1e6,
        "busy_percent": cpu / wall * 100,
        "connection_bytes": (connected - before) / task.clients,
        "waiting_bytes": (waiting - connected) / task.clients,
        **found,
    }
