"""An application for the browser tests.

Its arguments are the port, the number of operations, and the folder of the dashboard or "".

Two purgatories and durable timers on one timer, a dashboard under /wheels, and a load that runs
until the process ends.
"""

import asyncio
import contextlib
import itertools
import random
import sys
from collections.abc import AsyncGenerator
from datetime import timedelta

import uvicorn
from starlette.applications import Starlette

from aiowheel import Purgatory, Timer
from aiowheel.dashboard import Dashboard
from aiowheel.durable import DurableTimers, Fire, MemoryStore, Retry

TOPICS = [
    *(f"news/{place}" for place in ("oslo", "lima", "pune", "cork", "bern", "kyiv", "riga")),
    *(f"prices/{number:03}" for number in range(60)),
]


async def poll_and_publish(polls: Purgatory, pending: int) -> None:
    """Keep *pending* polls waiting, with more polls on some topics than on others."""
    chance = random.Random(7)
    weights = [1 / (1 + rank) for rank in range(len(TOPICS))]
    versions = dict.fromkeys(TOPICS, 40)
    for topic, version in versions.items():
        polls.advance(topic, version)
    while True:
        while len(polls) < pending:
            topic = chance.choices(TOPICS, weights)[0]
            seconds = chance.choice([1.5, 4, 15, 30, 60, 240]) * chance.uniform(0.5, 1)
            polls.wait_until({topic: versions[topic] + 1}, seconds)
        if chance.random() < 0.5:
            topic = chance.choice(TOPICS)
            versions[topic] += 1
            polls.advance(topic, versions[topic])
        await asyncio.sleep(0.03)


async def acknowledge(acks: Purgatory) -> None:
    """Wait for replicas that are never in time."""
    while True:
        for partition in range(6):
            keys = [("partition", partition), ("replica", partition % 3)]
            acks.wait_for(lambda: False, keys, timeout=3 + 2 * partition)
            await asyncio.sleep(1)


async def remind(reminders: DurableTimers) -> None:
    """Fire some reminders now, some of which fail, and keep many for the next hours."""
    chance = random.Random(3)
    for number in range(3_000):
        later = timedelta(seconds=600 + chance.gammavariate(2, 4 * 3600))
        await reminders.schedule(f"later {number}", "remind", due=later)
    for number in itertools.count():
        soon = timedelta(seconds=chance.uniform(0.1, 2))
        await reminders.schedule(f"soon {number}", "remind", due=soon, payload=b"%d" % number)
        await asyncio.sleep(0.1)


def on_reminder(fire: Fire) -> None:
    """Raise at times."""
    if fire.payload.endswith(b"7"):
        raise ConnectionError("the mail server is away")


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[None]:
    """Open timer, purgatories and dashboard, and keep them busy."""
    reminders = DurableTimers(MemoryStore(), window=60)
    reminders.handler("remind", retry=Retry(attempts=2, backoff=1))(on_reminder)
    async with (
        reminders,
        Timer() as timer,
        Purgatory("long-poll", timer=timer) as polls,
        Purgatory("acks", timer=timer) as acks,
    ):
        shown = {"reminders": reminders}
        dashboard = Dashboard(timer, [polls, acks], durable=shown, folder=sys.argv[3] or None)
        app.mount("/wheels", dashboard)
        load = [
            asyncio.create_task(poll_and_publish(polls, int(sys.argv[2]))),
            asyncio.create_task(acknowledge(acks)),
            asyncio.create_task(remind(reminders)),
        ]
        yield
        for task in load:
            task.cancel()
        await asyncio.wait(load)


if __name__ == "__main__":
    uvicorn.run(
        Starlette(lifespan=lifespan),
        port=int(sys.argv[1]),
        log_level="error",
    )
