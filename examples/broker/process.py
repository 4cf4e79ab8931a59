"""One of several broker processes: `python -m examples.broker.process FOLDER NAME NAME...`.

The first name is that of this process, the others are those of all processes, the leader first.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import aiowheel
from aiowheel.shared import SharedCounters, SqliteCounters
from examples.broker.replica import Replica
from examples.broker.server import listening


async def main(folder: Path, name: str, names: list[str]) -> None:
    """Serve until the process is killed; the file `NAME.port` holds the port."""
    async with (
        aiowheel.Purgatory(name) as purgatory,
        SharedCounters(purgatory, SqliteCounters(folder / "counters.db")) as shared,
    ):
        replica = Replica(name, names, folder, shared)
        async with listening(replica.answer) as port:
            partly = folder / f"{name}.port~"
            partly.write_text(str(port))
            partly.rename(folder / f"{name}.port")
            print("ready", flush=True)
            await replica.work()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
