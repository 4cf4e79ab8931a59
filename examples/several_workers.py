"""Three processes, one purgatory each: a publish in one wakes up the waits of all.

The counters are in a SQLite file. With `PostgresCounters` or `RedisCounters` the processes may run
on several machines.

Prints:
    worker 1 has version 1
    worker 2 has version 1
    the publisher killed worker 1
    worker 2 has version 2
    worker 3 has version 2
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import aiowheel
from aiowheel.shared import SharedCounters, SqliteCounters


async def work(path: str, name: str) -> None:
    """Print each new version of the document."""
    async with (
        aiowheel.Purgatory("docs") as purgatory,
        SharedCounters(purgatory, SqliteCounters(path)) as shared,
    ):
        version = await shared.value("document")
        print("ready", flush=True)
        while True:
            if version is not None:
                print(f"worker {name} has version {version}", flush=True)
            await shared.wait_until({"document": (version or 0) + 1}, None)
            version = await shared.value("document")


async def start(path: str, name: str) -> asyncio.subprocess.Process:
    """Start a worker; return when the worker waits."""
    worker = await asyncio.create_subprocess_exec(
        sys.executable, __file__, path, name, stdout=asyncio.subprocess.PIPE
    )
    assert worker.stdout is not None
    await worker.stdout.readline()
    return worker


async def show(worker: asyncio.subprocess.Process) -> None:
    """Print the worker's next line."""
    assert worker.stdout is not None
    print((await worker.stdout.readline()).decode(), end="", flush=True)


async def main() -> None:
    """Publish two versions, and kill a worker between them."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "counters.db")
        one, two = await start(path, "1"), await start(path, "2")
        async with (
            aiowheel.Purgatory("publisher") as purgatory,
            SharedCounters(purgatory, SqliteCounters(path)) as shared,
        ):
            await shared.advance("document", 1)
            await show(one)
            await show(two)
            one.kill()
            print("the publisher killed worker 1")
            await shared.advance("document", 2)
            await show(two)
            three = await start(path, "3")
            await show(three)
        for worker in (one, two, three):
            if worker.returncode is None:
                worker.kill()
            await worker.wait()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]) if len(sys.argv) > 1 else main())
