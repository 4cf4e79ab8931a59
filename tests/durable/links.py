"""Helpers for tests of several processes: connections to one store, recording handlers, waits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from aiowheel.durable import (
    DeadLetter,
    DurableTimers,
    Fire,
    MemoryStore,
    Row,
    Store,
    StoreError,
    Summary,
)
from aiowheel.durable._postgres_statements import PAGE, page_arguments
from aiowheel.durable.operations import Change, Cursor, Leased, Operation, Result


class Link(Store):
    """A store that passes calls to a `MemoryStore`; in subclasses, calls may fail or wait."""

    def __init__(self, base: MemoryStore) -> None:
        super().__init__()
        self.base = base
        self.partitions = base.partitions

    async def before(self) -> None:
        """Run before each call of the store."""

    def after(self) -> None:
        """Run after each call of the store that writes."""

    def hint(self) -> None:
        """Pass a hint to the subscribers."""
        self._hint()

    async def open(self, *, create: bool = True) -> None:
        """Open the common store."""
        await self.base.open()
        self.base.subscribe(self.hint)

    async def aclose(self) -> None:
        """Stop receiving hints."""
        self.base.unsubscribe(self.hint)

    def clock_us(self) -> int:
        """Return the common clock."""
        return self.base.clock_us()

    async def commit(self, owner: str, operations: Sequence[Operation]) -> list[Result]:
        """Call the same method of the common store."""
        await self.before()
        results = await self.base.commit(owner, operations)
        self.after()
        return results

    async def renew(
        self, owner: str, *, lease_us: int, horizon_us: int, give_up: Sequence[int] = ()
    ) -> Leased:
        """Call the same method of the common store."""
        await self.before()
        leased = await self.base.renew(
            owner, lease_us=lease_us, horizon_us=horizon_us, give_up=give_up
        )
        self.after()
        return leased

    async def now_us(self) -> int:
        """Call the same method of the common store."""
        await self.before()
        return await self.base.now_us()

    async def release(self, owner: str) -> None:
        """Call the same method of the common store."""
        await self.before()
        await self.base.release(owner)

    async def changes(self, owner: str) -> tuple[list[Change], bool]:
        """Call the same method of the common store."""
        await self.before()
        found = await self.base.changes(owner)
        self.after()
        return found

    async def page(self, cursors: Sequence[Cursor], until_us: int, limit: int) -> list[list[Row]]:
        """Call the same method of the common store."""
        await self.before()
        return await self.base.page(cursors, until_us, limit)

    async def get(self, name: str) -> Row | None:
        """Call the same method of the common store."""
        await self.before()
        return await self.base.get(name)

    async def rows(self, *, after: str = "", prefix: str = "", limit: int = 1000) -> list[Row]:
        """Call the same method of the common store."""
        return await self.base.rows(after=after, prefix=prefix, limit=limit)

    async def dead_letters(self, *, after: int = 0, limit: int = 1000) -> list[DeadLetter]:
        """Call the same method of the common store."""
        return await self.base.dead_letters(after=after, limit=limit)

    async def summary(self) -> Summary:
        """Call the same method of the common store."""
        return await self.base.summary()

    async def check(self) -> list[str]:
        """Call the same method of the common store."""
        return await self.base.check()


class Stalled(Link):
    """A connection whose calls wait until a moment on the loop's clock."""

    stalled_until = 0.0

    async def before(self) -> None:
        """Wait for that moment."""
        await asyncio.sleep(max(0.0, self.stalled_until - asyncio.get_running_loop().time()))


class Cut(Link):
    """A connection on which calls can fail before or after their effect."""

    mode = ""

    async def before(self) -> None:
        """Fail before the effect, in the mode "before"."""
        if self.mode == "before":
            raise StoreError("the store is cut off")

    def after(self) -> None:
        """Fail after the effect, in the mode "after"."""
        if self.mode == "after":
            raise StoreError("the store is cut off")


class Transactional(Link):
    """A store whose `settle_in` settles at once, without a transaction of the user."""

    async def settle_in(self, connection: Any, operation: Any) -> Result:
        """Settle at once."""
        (result,) = await self.base.commit("", [operation])
        return result


class Fired:
    """A handler that records the names of fires, with the number of its process."""

    def __init__(self, place: int = 0, into: list[tuple[int, str]] | None = None) -> None:
        self.place = place
        self.all: list[tuple[int, str]] = [] if into is None else into

    def __call__(self, fire: Fire) -> None:
        """Record the fire."""
        self.all.append((self.place, fire.name))

    @property
    def names(self) -> list[str]:
        """The names in the order of firing."""
        return [name for _, name in self.all]


async def pages_read(connection: Any, cursors: Sequence[Cursor], until_us: int) -> int:
    """Return the number of database pages that the reading of timers in PostgreSQL takes."""
    found = await connection.fetchval(
        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {PAGE}", *page_arguments(cursors, until_us, 1000)
    )
    plan = json.loads(found)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, at most two minutes."""
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.01)


async def refuse_a_second_use(store: Store) -> None:
    """Assert that a store object serves one `DurableTimers` at a time, which a second leaves be."""
    before = asyncio.all_tasks()
    fired = Fired()
    timers, second = DurableTimers(store), DurableTimers(store)
    timers.handler("h")(fired)
    async with timers:
        with pytest.raises(StoreError, match=f"this {type(store).__name__} is open already"):
            await second.__aenter__()
        await second.aclose()
        await timers.schedule("a", "h", due=timedelta(0))
        await until(lambda: fired.names == ["a"])
    async with second:
        pass

    assert asyncio.all_tasks() == before


async def share_and_take_over(stores: Sequence[Store], lease: float) -> None:
    """Assert that two processes share 8 partitions and 40 timers, and that one takes over all."""
    fired: list[tuple[int, str]] = []
    all_timers: list[DurableTimers] = []
    for place, store in enumerate(stores):
        timers = DurableTimers(store, lease=lease)
        timers.handler("h")(Fired(place, fired))
        all_timers.append(timers)
    first, second = all_timers
    now = timedelta(0)
    async with first:
        async with second:
            await until(
                lambda: first.statistics().partitions == second.statistics().partitions == 4
            )
            for number in range(40):
                await first.schedule(f"t{number}", "h", due=now)
            await until(lambda: len(fired) == 40)
            assert {place for place, _ in fired} == {0, 1}
        await until(lambda: first.statistics().partitions == 8)
        await first.schedule("last", "h", due=now)
        await until(lambda: len(fired) == 41)

    assert len({name for _, name in fired}) == 41
