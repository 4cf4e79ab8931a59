"""The faults of the store in memory: the state after a crash at each statement."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from aiowheel.durable import DurableTimers, Fire, MemoryStore, StoreError
from aiowheel.durable.operations import Cancel, Operation, Placed, Put, Removed
from aiowheel.testing import VirtualClockEventLoop

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]

FAR_US = 2**52


async def names_in(store: MemoryStore) -> list[str]:
    """Return the names of the timers, after a check of the indexes."""
    assert await store.check() == []
    return [row.name for row in await store.rows()]


async def crashed(store: MemoryStore) -> None:
    """Crash the store."""
    store.crash()


async def test_a_crash_loses_what_was_not_synced() -> None:
    """The earlier timers are restored, and a new timer gets an unused id."""
    store = MemoryStore()
    await store.open()
    await store.commit("a", [Put("old", "h", FAR_US, b"")])
    store.stop_syncing()
    _, lost = await store.commit("a", [Cancel("old"), Put("lost", "h", FAR_US, b"")])
    store.crash()
    assert await names_in(store) == ["old"]

    (new,) = await store.commit("a", [Put("new", "h", FAR_US, b"")])
    store.crash()

    assert await names_in(store) == ["new", "old"]
    assert isinstance(new, Placed)
    assert isinstance(lost, Placed)
    assert new.row.id > lost.row.id


@pytest.mark.parametrize("statements", [1, 2, 3, 4])
async def test_a_crash_comes_at_each_statement_of_a_commit(statements: int) -> None:
    """A crash before the commit undoes all operations; after it, only the answer is lost."""
    store = MemoryStore()
    await store.open()
    await store.commit("a", [Put("old", "h", FAR_US, b"")])
    store.crash_after(statements)
    operations: list[Operation] = [Cancel("old"), Put("new", "h", FAR_US, b"")]
    if statements < 4:
        with pytest.raises(StoreError, match="crashed"):
            await store.commit("a", operations)
    else:
        assert isinstance((await store.commit("a", operations))[0], Removed)

    assert await names_in(store) == (["old"] if statements < 3 else ["new"])


@pytest.mark.parametrize("statements", [1, 2, 3])
async def test_a_crash_comes_at_each_statement_of_a_renewal(statements: int) -> None:
    """The leases are either unchanged or all new."""
    store = MemoryStore(partitions=2)
    await store.open()
    store.crash_after(statements)
    with pytest.raises(StoreError, match="crashed"):
        await store.renew("a", lease_us=10**6, horizon_us=10**6)

    owners = (await store.summary()).owners
    assert owners == ({"": 2} if statements < 3 else {"a": 2})


async def test_a_store_that_crashed_is_down_for_a_while() -> None:
    """Each call raises until the end of that time."""
    store = MemoryStore()
    await store.open()
    store.crash(down=5)
    for call in (store.rows(), store.get("a"), store.summary(), store.release("a")):
        with pytest.raises(StoreError, match="is down"):
            await call
    await asyncio.sleep(5)
    assert await names_in(store) == []


def test_a_second_loop_continues_the_clock() -> None:
    """A virtual loop begins at zero, as a program after a restart does not."""
    store = MemoryStore()
    fired: list[datetime] = []

    async def program(*, days: float) -> datetime:
        timers = DurableTimers(store)

        @timers.handler("h")
        def record(fire: Fire) -> None:
            fired.append(fire.due)

        async with timers:
            await timers.schedule("a", "h", due=timedelta(days=10), if_exists="keep")
            await asyncio.sleep(days * 86_400)
            return timers.now()

    with asyncio.Runner(loop_factory=VirtualClockEventLoop) as runner:
        first = runner.run(program(days=6))
        runner.run(crashed(store))
    assert fired == []
    with asyncio.Runner(loop_factory=VirtualClockEventLoop) as runner:
        second = runner.run(program(days=5))

    assert second - first == timedelta(days=5)
    assert fired == [second - timedelta(days=1)]


@pytest.mark.parametrize("statements", [0, -1, 1_000_001])
def test_a_number_of_statements_out_of_range_is_refused(statements: int) -> None:
    """The error has the legal range."""
    with pytest.raises(ValueError, match="statements must be from 1 to 1000000"):
        MemoryStore().crash_after(statements)
