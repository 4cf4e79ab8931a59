"""A server whose connections may be silent for only so long. Rank 5.

Connections are opened anew for every round, from another process; what is measured is the CPU time
of this one while messages come in.
"""

import asyncio
import gc
from collections.abc import AsyncGenerator
from time import monotonic, process_time

from aiowheel.bench._clients import run_clients
from aiowheel.bench._descriptors import connections_allowed
from aiowheel.bench._side import Figures
from aiowheel.bench.workloads.hall import Hall
from aiowheel.bench.workloads.idle_clients import Crowd
from aiowheel.bench.workloads.silence import DESIGNS

LONG_SILENCE = 3600.0  # seconds allowed to those that say nothing: they are to stay


async def connections(
    design: str, silent: int, talking: int, rate: float, limit: float
) -> AsyncGenerator[Figures, None]:
    """Messages of so many connections, each allowed *limit* seconds of silence.

    The measured time is *limit*: timers that are filed anew once in that time are so once.
    """
    connections_allowed()
    while True:
        gc.collect()
        yield await _measure(design, silent, talking, rate, limit)


async def _measure(design: str, silent: int, talking: int, rate: float, limit: float) -> Figures:
    hall = Hall()
    open_doors = DESIGNS[design]
    async with (
        open_doors(hall, LONG_SILENCE) as silent_port,
        open_doors(hall, limit) as talking_port,
    ):
        crowd = Crowd(
            silent_port=silent_port,
            silent=silent,
            talking_port=talking_port,
            talking=talking,
            rate=rate,
            warm_up=talking,
            messages=int(rate * limit),
        )
        everything = crowd.warm_up + crowd.messages
        async with run_clients("idle_clients", crowd) as clients:
            await clients.told()  # that the measured messages follow
            cpu, wall = process_time(), monotonic()
            await clients.told()  # that they have been sent
            last_moment = monotonic() + limit
            # Polled, for an event that is set per message would be measured as well.
            while hall.received < everything and monotonic() < last_moment:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            cpu, wall = process_time() - cpu, monotonic() - wall
            figures = {
                "cpu_ns": cpu / crowd.messages * 1e9,
                "busy_percent": cpu / wall * 100,
                "open": hall.open,
                "silenced": hall.silenced,
                "lost": everything - hall.received,
            }
        while hall.open:  # noqa: ASYNC110 - the same
            await asyncio.sleep(0.001)
    return figures
