"""A process whose handler waits for a file: `python -m tests.durable.slow_handler STORE FOLDER`.

The handler writes the file `began` with the id of the fire, and waits for the file `go`. The
process then writes the file `stale` with the number of its refused acknowledgements.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from aiowheel.durable import DurableTimers, Fire

from .victim import LEASE, store_at


async def main(where: str, folder: Path) -> None:
    """Handle one fire."""
    timers = DurableTimers(store_at(where), lease=LEASE)

    @timers.handler("h")
    async def handle(fire: Fire) -> None:
        (folder / "hidden").write_text(fire.id, encoding="utf-8")
        (folder / "hidden").rename(folder / "began")
        while not (folder / "go").exists():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.01)

    async with timers:
        while not timers.statistics().stale:  # noqa: ASYNC110 - a count has no event
            await asyncio.sleep(0.01)
        (folder / "stale").write_text(str(timers.statistics().stale), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
