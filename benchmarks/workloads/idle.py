"""A server that closes connections after a limit of silence.

Another process opens the connections anew for every round. The figures are the CPU time of this
process while messages arrive.
"""

import asyncio
import gc
from collections.abc import AsyncGenerator
from time import monotonic, process_time

from benchmarks._clients import run_clients
from benchmarks._descriptors import connections_allowed
from benchmarks._side import Figures
from benchmarks.workloads.idle_clients import IdleTask
from benchmarks.workloads.server_counts import ServerCounts
from benchmarks.workloads.silence import DESIGNS

LONG_SILENCE = 3600.0  # seconds allowed to the silent connections, so that they stay open


async def connections(
    design: str, silent: int, talking: int, rate: float, limit: float
) -> AsyncGenerator[Figures, None]:
    """Measure messages of many connections, each with a *limit* of silence in seconds.

    The measurement lasts *limit*, so that designs which rearm a timer once per limit do so once.
    """
    connections_allowed()
    while True:
        gc.collect()
        yield await _measure(design, silent, talking, rate, limit)


async def _measure(design: str, silent: int, talking: int, rate: float, limit: float) -> Figures:
    counts = ServerCounts()
    open_server = DESIGNS[design]
    async with (
        open_server(counts, LONG_SILENCE) as silent_port,
        open_server(counts, limit) as talking_port,
    ):
        task = IdleTask(
            silent_port=silent_port,
            silent=silent,
            talking_port=talking_port,
            talking=talking,
            rate=rate,
            warm_up=talking,
            messages=int(rate * limit),
        )
        everything = task.warm_up + task.messages
        async with run_clients("idle_clients", task) as clients:
            await clients.read_line()  # "begin": the measured messages follow
            cpu, wall = process_time(), monotonic()
            await clients.read_line()  # "end": they have been sent
            last_moment = monotonic() + limit
            # Polled, because setting an event per message would be measured as well.
            while counts.received < everything and monotonic() < last_moment:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            cpu, wall = process_time() - cpu, monotonic() - wall
            figures = {
                "cpu_ns": cpu / task.messages * 1e9,
                "busy_percent": cpu / wall * 100,
                "open": counts.open,
                "silenced": counts.silenced,
                "lost": everything - counts.received,
            }
        while counts.open:  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.001)
    return figures
