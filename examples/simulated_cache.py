"""Find a race in a cache by seeds, which draw the order and the faults; show the smallest run.

Prints:
    seed ... of CacheWorld broke a rule: AssertionError: "a" was loaded twice at a time
    ...
    the mended cache: 50 runs, no rule broken
"""

import asyncio
from collections import Counter
from collections.abc import Hashable

from aiowheel.testing.simulation import SimulationFailedError, World, explore, step


class Cache:
    """Loads a value on the first call for its key; `loading` counts the loads under way."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.loading: Counter[str] = Counter()

    async def get(self, key: str) -> str:
        """Return the value. The bug: two callers may find it missing and load it twice."""
        if key not in self.values:
            self.values[key] = await self.load(key)
        return self.values[key]

    async def load(self, key: str) -> str:
        """Take some time, as a database does."""
        self.loading[key] += 1
        try:
            await asyncio.sleep(0.2)
        finally:
            self.loading[key] -= 1
        return key.upper()


class LockedCache(Cache):
    """The corrected cache: only one caller loads a key."""

    def __init__(self) -> None:
        super().__init__()
        self.locks = {key: asyncio.Lock() for key in "ab"}

    async def get(self, key: str) -> str:
        """Return the value."""
        async with self.locks[key]:
            return await super().get(key)


class CacheWorld(World):
    """Clients that call one cache."""

    cache_class: type[Cache] = Cache

    async def setup(self) -> None:
        """Create the cache; the loop is running."""
        self.cache = self.cache_class()
        self.clients = 0

    @step
    def client(self) -> None:
        """Start a client, which faults may cancel or break at any await."""
        self.clients += 1
        self.spawn(self.cache.get(self.random.choice("ab")), f"client {self.clients}")

    def check(self) -> None:
        """Check the rule after every step."""
        for key, count in self.cache.loading.items():
            assert count <= 1, f'"{key}" was loaded twice at a time'

    def state(self) -> Hashable:
        """Return the contents of the cache."""
        return tuple(sorted(self.cache.values))


class LockedCacheWorld(CacheWorld):
    """The same clients with the corrected cache."""

    cache_class = LockedCache


try:
    explore(CacheWorld, seeds=range(50))
except SimulationFailedError as failure:
    print(failure)

runs = explore(LockedCacheWorld, seeds=range(50)).runs
print(f"the mended cache: {runs} runs, no rule broken")
