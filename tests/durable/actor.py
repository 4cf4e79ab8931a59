"""A process with durable timers that executes orders until it is killed or its input ends.

`python -m tests.durable.actor STORE LOG`. An order is a line of JSON, `[number, method, name,
due_us, payload]`; its answer is the line `number result`. Each line of the log is written before
the next step: `begun NAME PAYLOAD ID TIME`, `ended PAYLOAD`, with microseconds of the store's
clock.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from typing import Any

from aiowheel.durable import DurableTimers, Fire, Retry
from aiowheel.durable._instants import to_datetime, to_us

from .victim import LEASE, store_at


def answer(line: str) -> None:
    """Write a line to the standard output."""
    os.write(1, f"{line}\n".encode())


async def main(where: str, log: str) -> None:
    """Work."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(*words: object) -> None:
        os.write(descriptor, (" ".join(map(str, words)) + "\n").encode())

    timers = DurableTimers(store_at(where), window=5, lease=LEASE, max_in_flight=20)

    @timers.handler("h", retry=Retry(1000, backoff=0.1, longest=1))
    async def handle(fire: Fire) -> None:
        token = fire.payload.decode()
        note("begun", fire.name, token, fire.id, to_us("now", timers.now()))
        await asyncio.sleep(random.choice((0, 0, 0.01, 0.3)))
        if random.random() < 0.1:
            raise ValueError("failed")
        note("ended", token)

    async def obey(number: int, method: str, name: str, due_us: int, payload: str) -> None:
        try:
            result = await _obey(timers, method, name, due_us, payload)
        except Exception as error:
            answer(f"{number} {json.dumps(repr(error))}")
        else:
            answer(f"{number} {json.dumps(result)}")

    orders = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    tasks: set[asyncio.Task[None]] = set()
    async with timers:
        answer("ready")
        async for line in orders:
            task = asyncio.create_task(obey(*json.loads(line)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)


async def _obey(timers: DurableTimers, method: str, name: str, due_us: int, payload: str) -> Any:
    match method:
        case "schedule":
            due = to_datetime(due_us)
            return await timers.schedule(name, "h", due=due, payload=payload.encode())
        case "cancel":
            return await timers.cancel(name)
        case _:
            return await timers.reschedule(name, to_datetime(due_us))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
