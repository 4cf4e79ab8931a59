"""Snapshots of durable timers: occasional counts of the store, and the numbers of the process."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from aiowheel import ManualTimer
from aiowheel.dashboard._durable import DurableSampler, merged_durable
from aiowheel.dashboard._sample import Sampler
from aiowheel.durable import DurableTimers, Fire, MemoryStore, Retry, Store, StoreError
from aiowheel.durable.operations import Summary

pytestmark = [pytest.mark.one_build, pytest.mark.virtual_time]

HOUR = timedelta(hours=1)


class Slow(MemoryStore):
    """A store whose count takes time, and can be made to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = 0
        self.seconds = 0.0
        self.fails = False

    async def summary(self) -> Summary:
        """Count slowly."""
        self.counts += 1
        await asyncio.sleep(self.seconds)
        if self.fails:
            raise StoreError("postgresql://secret@host is away")
        return await super().summary()


def made(store: Store) -> DurableTimers:
    """Return open timers whose handlers wait or fail."""
    timers = DurableTimers(store)

    async def wait(_: Fire) -> None:
        await asyncio.sleep(5 * 3600)

    def fail(_: Fire) -> None:
        raise ValueError("no")

    def do_nothing(_: Fire) -> None:
        pass

    timers.handler("wait")(wait)
    timers.handler("fail", retry=Retry(attempts=1))(fail)
    timers.handler("do")(do_nothing)
    return timers


async def counted_snapshot(snapshots: DurableSampler) -> Any:
    """Return the snapshot after the count of the store has ended."""
    snapshots.snapshot()
    await asyncio.sleep(0.1)
    (snapshot,) = snapshots.snapshot()
    return json.loads(json.dumps(snapshot))


async def test_the_store_and_the_process_are_counted() -> None:
    """The snapshot has pending timers by hour, late ones, fires, dead letters and owners."""
    async with made(MemoryStore(partitions=4)) as timers:
        for name, handler, due in (
            ("soon", "do", 2.5),
            ("late", "wait", 0.5),
            ("dead", "fail", 0.5),
            ("later", "do", 30),
        ):
            await timers.schedule(name, handler, due=due * HOUR)
        await asyncio.sleep(3600)
        snapshot = await counted_snapshot(DurableSampler({"mail": timers}))

    assert (snapshot["name"], snapshot["owner"], snapshot["failure"]) == (
        "mail",
        timers.owner,
        None,
    )
    assert (snapshot["in_flight"], snapshot["partitions"]) == (1, 4)
    store = snapshot["store"]
    assert (store["pending"], store["overdue"], store["dead"]) == (3, 1, 1)
    assert store["hours"] == [1, 1, *[0] * 22]
    assert store["owners"] == {timers.owner: 4}


async def test_the_store_is_counted_for_a_hundredth_of_the_time() -> None:
    """The number of snapshots does not matter; without a viewer there are no counts."""
    store = Slow()
    async with made(store) as timers:
        snapshots = DurableSampler({"mail": timers})
        for _ in range(80):
            snapshots.snapshot()
            await asyncio.sleep(0.25)
        assert store.counts == 4

        store.counts, store.seconds = 0, 2.0
        for _ in range(4 * 410):
            snapshots.snapshot()
            await asyncio.sleep(0.25)
        assert store.counts == 3

        snapshots.discard()
        await asyncio.sleep(1_000)
        assert store.counts == 3


async def test_a_store_that_fails_leaves_the_last_count() -> None:
    """The snapshot names the type of the error, and not its text, which may hold an address."""
    store = Slow()
    async with made(store) as timers:
        snapshots = DurableSampler({"mail": timers})
        before = await counted_snapshot(snapshots)
        store.fails = True
        await asyncio.sleep(10)
        after = await counted_snapshot(snapshots)
        store.fails = False
        await asyncio.sleep(10)
        again = await counted_snapshot(snapshots)

    assert (before["failure"], after["failure"], again["failure"]) == (None, "StoreError", None)
    assert after["store"] == before["store"]
    assert "secret" not in json.dumps(after)


async def test_timers_that_are_not_open_fail_no_snapshot() -> None:
    """Before they are opened, and after they are closed, the count fails without an effect."""
    timers = made(MemoryStore())
    snapshots = DurableSampler({"mail": timers})
    assert (await counted_snapshot(snapshots))["failure"] == "DurableTimersClosedError"
    async with timers:
        await asyncio.sleep(10)
        assert (await counted_snapshot(snapshots))["failure"] is None
    await asyncio.sleep(10)
    assert (await counted_snapshot(snapshots))["failure"] == "DurableTimersClosedError"


async def test_points_count_fires_and_their_lateness() -> None:
    """A fire counts in the second in which it began."""
    async with made(MemoryStore()) as timers:
        history = Sampler(ManualTimer(), {}, {"mail": timers}, "run").history
        await timers.schedule("a", "do", due=0.5 * HOUR)
        await timers.schedule("b", "fail", due=0.5 * HOUR)
        history.take(1)
        await asyncio.sleep(3600)
        history.take(2)
        history.take(3)

    first, second, third = [point["durable"]["mail"] for point in history.last()]
    assert [each["fired"] for each in (first, second, third)] == [0, 2, 0]
    assert (second["acknowledged"], second["dead"], second["retried"]) == (1, 1, 0)
    assert sum(count for _, count in second["late"]) == 2


async def test_processes_that_share_a_store_are_added() -> None:
    """The numbers in memory are added; of the store, the newest count is taken."""
    store = MemoryStore()
    async with made(store) as one, made(store) as other:
        await one.schedule("a", "do", due=HOUR)
        snapshots = [
            await counted_snapshot(DurableSampler({"mail": timers})) for timers in (one, other)
        ]
        total = merged_durable(snapshots)

    assert total["partitions"] == sum(snapshot["partitions"] for snapshot in snapshots) == 4
    assert total["store"] == snapshots[1]["store"]
    assert total["store"]["pending"] == 1
    assert merged_durable([{**snapshots[0], "store": None}])["store"] is None
