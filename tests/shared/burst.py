"""A program that publishes keys in a SQLite file, each in its own write."""

import asyncio
import sys

from aiowheel.shared import SqliteCounters


class NoListener:
    """A listener that does nothing."""

    def hint(self, epoch: str, values: object) -> None:
        """Do nothing."""

    def gap(self) -> None:
        """Do nothing."""


async def main(path: str, seed: str, count: str) -> None:
    """Publish 1 for each key."""
    store = SqliteCounters(path)
    await store.open(NoListener())
    for number in range(int(count)):
        await store.raise_to({f"{seed} {number}": 1})
    await store.aclose()


asyncio.run(main(*sys.argv[1:]))
