"""`aiowheel serve --workers 4` under 10,000 polls, while its workers are killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import defaultdict

import psutil
import pytest

from tests.crowds import Connection, busiest_of

from .conftest import Process, process

pytestmark = [
    pytest.mark.one_build,
    pytest.mark.realtime,
    pytest.mark.slow,
    pytest.mark.shared_faults,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked"),
]

TOPICS = 10_000  # each has one reader
WRITERS = 16  # each has its own topics
KILL_EVERY = 10.0  # seconds


class Crowd:
    """The readers and writers of all topics.

    Attributes:
        seen: The messages of each topic that its reader got; the first has version 1.
        receipts: The acknowledged messages of each topic, by their version.
        answered: The number of readers that got an answer.
        lost_connections: The number of requests without an answer.
    """

    def __init__(self, server: Process) -> None:
        self._port = server.port
        self._gate = asyncio.Semaphore(100)
        self.seen: list[list[int]] = [[] for _ in range(TOPICS)]
        self.receipts: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self.answered: set[int] = set()
        self.lost_connections = 0

    async def read(self, topic: int) -> None:
        """Follow one topic until cancelled; check that each answer continues the last one."""
        connection = Connection(self._port, self._gate)
        epoch = ""
        seen = self.seen[topic]
        # The readers are there when their topics have no messages; the first answers are empty.
        timeout = 0
        while True:
            path = f"/topics/t{topic}?since={len(seen)}&timeout={timeout}"
            if epoch:
                path += f"&epoch={epoch}"
            answer = await self._answer(connection, "GET", path)
            if answer is None:
                continue
            status, text = answer
            assert status == 200, text
            page = json.loads(text)
            assert (page["missed"], page["reset"]) == (0, False)
            for message in page["messages"]:
                assert message["version"] == len(seen) + 1
                seen.append(int(message["data"]))
            epoch = epoch or page["epoch"]
            assert page["epoch"] == epoch
            self.answered.add(topic)
            timeout = 120

    async def write(self, numbers: range) -> None:
        """Publish these numbers to their topics, each until it is acknowledged."""
        connection = Connection(self._port, self._gate)
        for number in numbers:
            topic = number % TOPICS
            path = f"/topics/t{topic}"
            while (answer := await self._answer(connection, "POST", path, str(number))) is None:
                pass
            status, text = answer
            assert status == 201, text
            self.receipts[topic][json.loads(text)["version"]] = number
        connection.close()

    async def _answer(
        self, connection: Connection, method: str, path: str, body: str = ""
    ) -> tuple[int, str] | None:
        """Return status and text; None, after a pause, if the worker was killed."""
        try:
            status, _, text = await connection.ask(method, path, body=body)
        except (OSError, EOFError):
            self.lost_connections += 1
            await asyncio.sleep(random.random() * 0.2)
            return None
        return status, text

    def is_done(self) -> bool:
        """Return whether every reader has the last acknowledged message of its topic."""
        return all(len(self.seen[topic]) >= max(known) for topic, known in self.receipts.items())

    def check(self, publishes: int) -> None:
        """Check every message of every reader.

        A publish without an answer may have been made, and is made again: its number may then
        stand twice in a topic, one after the other.
        """
        for topic, seen in enumerate(self.seen):
            assert seen == sorted(seen)
            assert set(seen) == set(range(topic, publishes, TOPICS))
            for version, number in self.receipts[topic].items():
                assert seen[version - 1] == number


async def test_a_million_messages(store: str) -> None:
    """Each reader gets each message of its topic once and in order; every receipt holds."""
    publishes = int(os.environ.get("AIOWHEEL_PUBLISHES", "1000000"))
    kills = 0
    arguments = ["--workers", "4", "--store", store, "--max-waiters-per-client", str(2 * TOPICS)]
    with process(*arguments) as server:
        workers = psutil.Process(server.process.pid)
        crowd = Crowd(server)
        async with asyncio.TaskGroup() as group:
            reading = [group.create_task(crowd.read(topic)) for topic in range(TOPICS)]
            while len(crowd.answered) < TOPICS:  # noqa: ASYNC110 - the readers have no event
                await asyncio.sleep(0.1)
            left = {
                group.create_task(crowd.write(range(start, publishes, WRITERS)))
                for start in range(WRITERS)
            }
            while left:
                _, left = await asyncio.wait(left, timeout=KILL_EVERY)
                if left:
                    busiest_of(workers).kill()
                    kills += 1
            while not crowd.is_done():  # noqa: ASYNC110 - the readers have no event
                await asyncio.sleep(0.1)
            for task in reading:
                task.cancel()
        crowd.check(publishes)
        code, errors = await asyncio.to_thread(server.stop)

    assert code == 0
    assert errors.count("ended by signal 9; it is started again") == kills
    assert crowd.lost_connections > 0  # the killed workers had readers
