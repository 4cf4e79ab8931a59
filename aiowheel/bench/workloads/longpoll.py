"""Long polls over real connections, from the server's side. Rank 5."""

import asyncio
import json
from collections.abc import AsyncGenerator
from functools import partial
from time import monotonic, process_time

from aiowheel.bench._clients import run_clients
from aiowheel.bench._descriptors import connections_allowed
from aiowheel.bench._memory import resident_bytes
from aiowheel.bench._side import Figures
from aiowheel.bench.baselines.long_polls import DESIGNS, LongPolls
from aiowheel.bench.workloads.longpoll_clients import Audience
from aiowheel.bench.workloads.longpoll_server import HttpConnection

_BACKLOG = 4_096


async def rounds(
    design: str, clients: int, topics: int, keys: int, rate: float, seconds: float
) -> AsyncGenerator[Figures, None]:
    """All clients connect and wait, then events come for so many seconds; anew each round.

    Memory is that of the process's first round: what later ones hold, earlier ones have left.
    """
    connections_allowed()
    while True:
        polls = DESIGNS[design]()
        server = await asyncio.get_running_loop().create_server(
            partial(HttpConnection, polls), "127.0.0.1", 0, backlog=_BACKLOG
        )
        port = server.sockets[0].getsockname()[1]
        audience = Audience(port, clients, topics, keys, rate, max(2, int(rate * seconds)))
        async with server:
            yield await _measure(polls, audience)


async def _measure(polls: LongPolls, audience: Audience) -> Figures:
    before = resident_bytes()
    async with run_clients("longpoll_clients", audience) as clients:
        await clients.told()  # that they are connected
        connected = resident_bytes()
        clients.go_on()
        await clients.told()  # that they have polled
        while polls.waiting < audience.clients:  # noqa: ASYNC110 - sockets bring them
            await asyncio.sleep(0.01)
        waiting = resident_bytes()
        cpu, wall = process_time(), monotonic()
        clients.go_on()
        found: Figures = json.loads(await clients.told())
        cpu, wall = process_time() - cpu, monotonic() - wall
    while polls.waiting:  # noqa: ASYNC110 - the same
        await asyncio.sleep(0.01)
    return {
        "target": audience.rate,
        "cpu_us": cpu / found["answers"] * 1e6,
        "busy_percent": cpu / wall * 100,
        "connection_bytes": (connected - before) / audience.clients,
        "waiting_bytes": (waiting - connected) / audience.clients,
        **found,
    }
