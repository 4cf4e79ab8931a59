"""Three broker processes, of which one is killed: `python -m examples.broker.cluster`.

Prints:
    produce at the leader: NONE
    fetch at each process: ['apple'] ['apple'] ['apple']
    a follower is killed: REQUEST_TIMED_OUT
    not committed, so fetch gives: []
    the follower is back: NONE
    fetch at the follower: ['banana', 'cherry']
    the leader was killed and is back: NONE
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

from examples.broker.client import Client

NAMES = ("leader", "left", "right")
LONG, SHORT = 60.0, 0.3  # seconds


class Cluster:
    """The processes, each started by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, Process] = {}

    async def start(self, name: str) -> None:
        """Start a process; return when it serves."""
        words = ("-m", "examples.broker.process", str(self._folder), name, *NAMES)
        process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=PIPE)
        self._processes[name] = process
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"

    async def kill(self, name: str) -> None:
        """Kill a process."""
        process = self._processes.pop(name)
        process.kill()
        await process.wait()

    async def kill_all(self) -> None:
        """Kill all running processes."""
        for name in list(self._processes):
            await self.kill(name)

    async def call(self, name: str, call: str, **arguments: object) -> Any:
        """Call one process."""
        async with Client(int((self._folder / f"{name}.port").read_text())) as client:
            return await client.call(call, **arguments)


async def main(cluster: Cluster) -> None:
    """Produce and fetch, while processes are killed and started again."""
    for name in NAMES:
        await cluster.start(name)
    done = await cluster.call("leader", "produce", records=["apple"], max_wait=LONG)
    print("produce at the leader:", done)
    found = [await cluster.call(name, "fetch", offset=0, max_wait=LONG) for name in NAMES]
    print("fetch at each process:", *found)
    await cluster.kill("right")
    done = await cluster.call("left", "produce", records=["banana"], max_wait=SHORT)
    print("a follower is killed:", done)
    found = await cluster.call("left", "fetch", offset=1, max_wait=0)
    print("not committed, so fetch gives:", found)
    await cluster.start("right")
    done = await cluster.call("left", "produce", records=["cherry"], max_wait=LONG)
    print("the follower is back:", done)
    print("fetch at the follower:", await cluster.call("right", "fetch", offset=1, max_wait=LONG))
    await cluster.kill("leader")
    await cluster.start("leader")
    done = await cluster.call("right", "produce", records=["damson"], max_wait=LONG)
    print("the leader was killed and is back:", done)


async def in_a_folder() -> None:
    """Run it in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder))
        try:
            await main(cluster)
        finally:
            await cluster.kill_all()


if __name__ == "__main__":
    asyncio.run(in_a_folder())
