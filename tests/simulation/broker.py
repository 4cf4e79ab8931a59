"""The world of the broker of examples/broker: produce, fetch and copy, with followers that crash.

The oracle is the log itself: acknowledged records are on every follower, and fetched records are
committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from aiowheel import Timer
from aiowheel.testing.simulation import World, step
from examples.broker.broker import Broker

_PARTITIONS: tuple[str, ...] = ("p", "q")
_FOLLOWERS: tuple[str, ...] = ("f", "g")


class BrokerWorld(World):
    """A leader of two partitions, two followers, producers and consumers."""

    faults = World.faults | {"follower crash"}
    longest_pause = 60.0  # followers poll continuously

    async def setup(self) -> None:
        """Start the leader and its followers."""
        self.timer = await Timer().__aenter__()
        self.broker = Broker(self.timer, _PARTITIONS, _FOLLOWERS)
        self.copied = {follower: dict.fromkeys(_PARTITIONS, 0) for follower in _FOLLOWERS}
        self.running: dict[str, asyncio.Task[None]] = {}
        self.number = 0
        for follower in _FOLLOWERS:
            self.start(follower)

    # --- followers --------------------------------------------------------------------------

    def start(self, follower: str) -> None:
        """Start a follower, which continues after the records that it has copied before."""
        self.running[follower] = self.loop.create_task(self.follow(follower), name=follower)

    async def follow(self, follower: str) -> None:
        """Copy records until cancelled."""
        offsets = self.copied[follower]
        while True:
            records = await self.broker.copy(follower, offsets, max_wait=5.0)
            for partition, more in records.items():
                offsets[partition] += len(more)

    def strike(self, kind: str) -> None:
        """Crash a follower, which starts again after a pause."""
        assert kind == "follower crash"
        follower = self.loop.chance.choice(_FOLLOWERS)
        task = self.running.pop(follower, None)
        if task is not None:
            task.cancel()
            self.loop.call_later(self.loop.chance.choice((0.0, 1.0, 20.0)), self.start, follower)

    def committed(self, partition: str) -> int:
        """Return the number of records that every follower has copied."""
        return min(offsets[partition] for offsets in self.copied.values())

    # --- clients ----------------------------------------------------------------------------

    @step(weight=4)
    def produce(self) -> None:
        """Start a producer, which waits for all followers."""
        self.number += 1
        chosen = self.random.sample(_PARTITIONS, self.random.randint(1, 2))
        batches = {partition: [f"{self.number}"] for partition in chosen}
        self.spawn(self.producer(batches, self.random.choice((0.5, 30.0))), f"put {self.number}")

    async def producer(self, batches: dict[str, list[str]], seconds: float) -> None:
        """Produce, and assert that acknowledged records are on every follower."""
        began = self.now_ns
        answer = self.broker.produce(batches, seconds)
        ends = {partition: self.broker.logs[partition].end for partition in batches}
        for partition, word in (await answer).items():
            if word == "NONE":
                assert self.committed(partition) >= ends[partition], "acknowledged too early"
            else:
                assert self.now_ns - began >= seconds * 1e9 - 64, "a producer timed out early"

    @step(weight=4)
    def fetch(self) -> None:
        """Start a consumer, which waits for more records."""
        self.number += 1
        partition = self.random.choice(_PARTITIONS)
        offset = max(0, self.committed(partition) + self.random.randint(-1, 1))
        self.spawn(self.consumer(partition, offset), f"get {self.number}")

    async def consumer(self, partition: str, offset: int) -> None:
        """Fetch, and assert that the records are committed and in order."""
        records = (await self.broker.fetch({partition: offset}, max_wait=10.0))[partition]
        log = self.broker.logs[partition]
        assert records == log.records[offset : offset + len(records)]
        assert offset + len(records) <= max(offset, self.committed(partition)), (
            "a fetched record is not committed"
        )

    # --- rules ------------------------------------------------------------------------------

    def idle(self) -> None:
        """Assert that no pending operation has its condition met."""
        if not hasattr(self, "running"):
            return
        for purgatory in (self.broker.produces, self.broker.fetches):
            for operation in purgatory.pending():
                assert not operation.try_complete(), (
                    f"{operation} is pending although its condition is met"
                )

    def state(self) -> Hashable:
        """Return how many records each follower is behind."""
        behind = tuple(
            min(self.broker.logs[partition].end - offsets[partition], 5)
            for offsets in self.copied.values()
            for partition in _PARTITIONS
        )
        return (behind, len(self.running))

    async def finish(self) -> None:
        """Let the followers catch up, and stop."""
        for _ in range(9):  # several sleeps, because a jump of the clock may end one at once
            await asyncio.sleep(10)
        for partition in _PARTITIONS:
            end = self.broker.logs[partition].end
            assert self.committed(partition) == end, "the followers did not catch up"
        for task in self.running.values():
            task.cancel()
        await asyncio.wait(self.running.values())
        await self.settle()
        await self.broker.aclose()
        await self.timer.aclose()
