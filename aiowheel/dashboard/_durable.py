"""Snapshots of durable timers for the dashboard. Rank 4.

The numbers of this process are in memory. The numbers of the store need a count in the store, whose
cost grows with the pending timers. It therefore runs only while there is a viewer, and for at most
one percent of the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aiowheel.dashboard._waiting import Json

if TYPE_CHECKING:
    from aiowheel.durable import DurableTimers

_LEAST_PAUSE: Final = 5.0  # seconds between two counts of a store
_SHARE: Final = 0.01  # maximum share of the time for counts of a store
_LONGEST: Final = 60.0  # timeout of one count, in seconds
_OF_PROCESS: Final = ("resident", "ready", "in_flight", "partitions")


class DurableSampler:
    """Takes snapshots of the durable timers of this process.

    Args:
        durable: Durable timers, by the name to show.
    """

    def __init__(self, durable: Mapping[str, DurableTimers]) -> None:
        self._stores = {name: _Store(timers) for name, timers in durable.items()}

    def snapshot(self) -> list[Json]:
        """Return a snapshot; start the counts of stores that are due, for later snapshots."""
        return [store.snapshot(name) for name, store in self._stores.items()]

    def discard(self) -> None:
        """Cancel the counts of stores, because there is no viewer."""
        for store in self._stores.values():
            store.discard()


class _Store:
    """The snapshots of one `DurableTimers`, with the last count of its store."""

    def __init__(self, timers: DurableTimers) -> None:
        self._timers = timers
        self._counting: asyncio.Task[None] | None = None
        self._due = 0.0  # time of the loop at which the next count may begin
        self._last: Json | None = None
        self._failure: str | None = None

    def snapshot(self, name: str) -> Json:
        now = asyncio.get_running_loop().time()
        if self._counting is None and now >= self._due:
            self._counting = asyncio.create_task(self._count(), name="aiowheel durable count")
        statistics = self._timers.statistics()
        return {
            "name": name,
            "owner": self._timers.owner,
            **{each: int(getattr(statistics, each)) for each in _OF_PROCESS},
            "latest": statistics.lateness.maximum,
            "store": self._last,
            "failure": self._failure,
        }

    def discard(self) -> None:
        counting, self._counting = self._counting, None
        if counting is not None:
            counting.cancel()

    async def _count(self) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with asyncio.timeout(_LONGEST):
                summary = await self._timers.summary()
        except Exception as error:  # an error of a custom store must not prevent the next count
            # The name only: the text may hold the address of the store.
            self._failure = type(error).__name__
        else:
            self._last = {**summary._asdict(), "at": loop.time()}
            self._failure = None
        now = loop.time()
        self._due = now + max(_LEAST_PAUSE, (now - begun) / _SHARE)
        self._counting = None


def merged_durable(alike: list[Json]) -> Json:
    """Return one snapshot of durable timers of the same name in several processes."""
    counted = [each for each in alike if each["store"] is not None]
    newest = max(counted, key=lambda each: float(each["store"]["at"]), default=alike[0])
    return {
        **newest,
        **{name: sum(each[name] for each in alike) for name in _OF_PROCESS},
        "owner": "",
        "latest": max(each["latest"] for each in alike),
    }
