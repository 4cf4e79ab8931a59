"""Durable timers as the dashboard shows them. Rank 4.

What this process does is counted in memory. What the store holds is counted by the store, at a cost
that grows with what is pending: so only while there is a viewer, and for a hundredth of the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aiowheel.dashboard._waiting import Json

if TYPE_CHECKING:
    from aiowheel.durable import DurableTimers

_LEAST_PAUSE: Final = 5.0  # seconds between two counts of a store
_SHARE: Final = 0.01  # of the time, at most, for counts of a store
_LONGEST: Final = 60.0  # seconds for one count
_HERE: Final = ("resident", "ready", "in_flight", "partitions")


class DurableLooks:
    """Looks at the durable timers of this process.

    Args:
        durable: By the name to show.
    """

    def __init__(self, durable: Mapping[str, DurableTimers]) -> None:
        self._stores = {name: _Store(timers) for name, timers in durable.items()}

    def look(self) -> list[Json]:
        """Return what is there; a count of a store that is due begins, for a later look."""
        return [store.look(name) for name, store in self._stores.items()]

    def rest(self) -> None:
        """Count no store, because there is no viewer."""
        for store in self._stores.values():
            store.rest()


class _Store:
    """Durable timers, and the last count of their store."""

    def __init__(self, timers: DurableTimers) -> None:
        self._timers = timers
        self._counting: asyncio.Task[None] | None = None
        self._due = 0.0  # time of the loop at which the next count may begin
        self._last: Json | None = None
        self._failure: str | None = None

    def look(self, name: str) -> Json:
        now = asyncio.get_running_loop().time()
        if self._counting is None and now >= self._due:
            self._counting = asyncio.create_task(self._count(), name="aiowheel durable count")
        statistics = self._timers.statistics()
        return {
            "name": name,
            "owner": self._timers.owner,
            **{each: int(getattr(statistics, each)) for each in _HERE},
            "latest": statistics.lateness.maximum,
            "store": self._last,
            "failure": self._failure,
        }

    def rest(self) -> None:
        counting, self._counting = self._counting, None
        if counting is not None:
            counting.cancel()

    async def _count(self) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with asyncio.timeout(_LONGEST):
                summary = await self._timers.summary()
        except Exception as error:  # a store may be the application's, and the next count must come
            # Not its text, which may hold the address of the store.
            self._failure = type(error).__name__
        else:
            self._last = {**summary._asdict(), "at": loop.time()}
            self._failure = None
        now = loop.time()
        self._due = now + max(_LEAST_PAUSE, (now - begun) / _SHARE)
        self._counting = None


def merged_durable(alike: list[Json]) -> Json:
    """Return one look for the same durable timers in several processes, which share a store."""
    counted = [each for each in alike if each["store"] is not None]
    newest = max(counted, key=lambda each: float(each["store"]["at"]), default=alike[0])
    return {
        **newest,
        **{name: sum(each[name] for each in alike) for name in _HERE},
        "owner": "",
        "latest": max(each["latest"] for each in alike),
    }
