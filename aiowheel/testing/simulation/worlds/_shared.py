"""The world of shared counters: two processes, and a store with unreliable hints. Rank 4.

The oracle records every written value with its history of the store. Each history begins with small
values, so that a value of an earlier history is greater than those of the current one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Hashable, Mapping
from typing import Self

from aiowheel.errors import EpochChangedError, StoreUnavailableError
from aiowheel.purgatory import Purgatory
from aiowheel.shared import SharedCounters
from aiowheel.testing._memory_counters import MemoryCounters
from aiowheel.testing.simulation._faults import COMMON_FAULTS
from aiowheel.testing.simulation._world import World, step

_KEYS = ("a", "b", "c")
_OWN = frozenset(
    {
        *("lost hints", "late hint", "repeated hint"),
        *("store down", "failed read", "lost answer", "lost history"),
        *("crash", "lost writes"),
    }
)
_LATENCIES = (0.0, 0.0, 0.001, 0.05, 1.0)
_LATE = (0.001, 0.05, 1.0, 20.0)  # seconds by which a hint is late
_LINGER = 5.0
#: Seconds of writes that a crash of the store loses. Processes repeat their publishes of the
#: lingering time, so the values must be shorter than that.
_BEHIND = (0.0, 0.3, 4.0)


class UnreliableCounters(MemoryCounters):
    """A store whose answers take time, and whose hints are late, out of order and repeated."""

    world: SharedWorld

    def in_world(self, world: SharedWorld) -> Self:
        """Draw choices from a world; return this store."""
        self.world = world
        return self

    async def pause(self) -> None:
        """Wait for a drawn time."""
        await asyncio.sleep(self.world.loop.chance.choice(_LATENCIES))

    async def raise_to(self, values: Mapping[str, int]) -> str:
        """Write after a pause, and answer after another; a crash in between loses the answer."""
        values, world = dict(values), self.world
        await self.pause()
        before, _ = await super().read(())
        world.note_write(before, values)
        epoch = await super().raise_to(values)
        crashes, history = self.crashes, world.history
        await self.pause()
        if self.crashes != crashes and world.history == history:
            raise StoreUnavailableError("the store crashed before it answered")
        return epoch

    async def read(self, keys: Collection[str]) -> tuple[str, dict[str, int]]:
        """Read after a pause, and answer after another one, so that the answer may be outdated."""
        await self.pause()
        if self.world.is_open and self.world.happens("failed read", 0.2):
            raise StoreUnavailableError("a read failed")
        answer = await super().read(keys)
        await self.pause()
        return answer

    def receive(self, epoch: str, values: Mapping[str, int]) -> None:
        """Deliver a hint now, later, or twice."""
        world = self.world
        if world.happens("late hint", 0.2):
            world.loop.call_later(world.loop.chance.choice(_LATE), self.deliver, epoch, values)
        else:
            self.deliver(epoch, values)
        if world.happens("repeated hint", 0.1):
            world.loop.call_later(world.loop.chance.choice(_LATE), self.deliver, epoch, values)

    def deliver(self, epoch: str, values: Mapping[str, int]) -> None:
        """Pass a hint to the listener."""
        super().receive(epoch, values)


class Wait:
    """One call of `wait_until`."""

    def __init__(
        self, process: SharedCounters, key: str, least: int, timeout: float | None, now_ns: int
    ) -> None:
        self.process = process
        self.began_ns = now_ns
        self.key = key
        self.least = least
        self.timeout = timeout
        self.epoch = process.epoch
        self.future = process.wait_until({key: least}, timeout)


class SharedWorld(World):
    """Two processes that share counters in a store."""

    faults = COMMON_FAULTS | _OWN
    is_open = False

    async def setup(self) -> None:
        """Start both processes."""
        first = UnreliableCounters().in_world(self)
        self.stores = [first, first.beside().in_world(self)]
        self.purgatories = [Purgatory(f"process {place}") for place in range(2)]
        self.processes = [
            SharedCounters(purgatory, store, linger=_LINGER, patience=10.0)
            for purgatory, store in zip(self.purgatories, self.stores, strict=True)
        ]
        for process in self.processes:
            await process.__aenter__()
        self.history = 0
        self.number = 0
        self.waits: list[Wait] = []
        self.tried: dict[str, int] = {}  # in this history
        self.confirmed: dict[str, int] = {}  # in this history
        self.written: dict[tuple[str, str], int] = {}  # by epoch and key
        self.is_open = True

    # --- steps ------------------------------------------------------------------------------

    @step(weight=5)
    def publish(self) -> None:
        """Raise a counter in one of the processes."""
        key = self.random.choice(_KEYS)
        value = self.tried.get(key, 0) + self.random.randint(0, 3)
        self.tried[key] = max(value, self.tried.get(key, 0))
        process = self.random.choice(self.processes)
        self.number += 1
        self.spawn(self.publisher(process, key, value), f"publish {self.number}")

    async def publisher(self, process: SharedCounters, key: str, value: int) -> None:
        """Publish a value; record it if the store confirmed it."""
        history = self.history
        try:
            await process.advance(key, value)
        except StoreUnavailableError:
            return
        if history == self.history:
            self.confirmed[key] = max(value, self.confirmed.get(key, -1))

    def note_write(self, epoch: str, values: Mapping[str, int]) -> None:
        """Record the values that a store will write."""
        for key, value in values.items():
            self.written[epoch, key] = max(value, self.highest(epoch, key))

    def highest(self, epoch: str, key: str) -> int:
        """Return the highest value that a counter has had in a history; -1 if it had none."""
        return self.written.get((epoch, key), -1)

    @step(weight=5)
    def wait(self) -> None:
        """Start a wait in one of the processes."""
        key = self.random.choice(_KEYS)
        least = max(0, self.tried.get(key, 0) + self.random.randint(-1, 4))
        timeout = self.random.choice((None, None, 0.5, 30.0))
        wait = Wait(self.random.choice(self.processes), key, least, timeout, self.now_ns)
        self.waits.append(wait)
        self.number += 1
        self.spawn(self.client(wait), f"wait {self.number}")

    async def client(self, wait: Wait) -> None:
        """Wait, and assert that the result is right."""
        try:
            reached = await wait.future
        except EpochChangedError:
            assert self.history, "an epoch changed without a lost history"
            assert not self.is_open or wait.process.epoch != wait.epoch
            return
        if reached:
            known = self.highest(wait.epoch, wait.key)
            assert known >= wait.least, f"{wait.key} was never at {wait.least}, but at {known}"
        elif self.is_open:
            assert wait.timeout is not None, "a wait without a timeout timed out"
            assert self.now_ns - wait.began_ns >= wait.timeout * 1e9 - 64, "a wait timed out early"

    @step
    def ask(self) -> None:
        """Read a value in one of the processes."""
        process = self.random.choice(self.processes)
        self.spawn(self.reader(process, self.random.choice(_KEYS)), f"read {self.number}")
        self.number += 1

    async def reader(self, process: SharedCounters, key: str) -> None:
        """Read a value, and assert that it is not above the values written in this history."""
        value = await process.value(key)
        assert value is None or value <= self.highest(process.epoch, key)

    def strike(self, kind: str) -> None:
        """Make the store fail; it recovers after a drawn time."""
        chance = self.loop.chance
        store = chance.choice(self.stores)
        pause = chance.choice((0.0, 0.3, 8.0))
        if kind == "lost hints":
            store.lose_hints()
            self.loop.call_later(pause, store.subscribe_again)
        elif kind == "store down":
            store.go_down()
            self.loop.call_later(pause, store.come_back)
        elif kind == "lost answer":
            store.lose_answers(chance.randint(1, 3))
        elif kind == "lost history":
            self.history += 1
            self.tried.clear()
            self.confirmed.clear()
            store.lose_history()
        elif kind == "crash":
            store.crash_after(chance.randint(1, 9))
        elif kind == "lost writes":
            store.stop_syncing()
            self.loop.call_later(chance.choice(_BEHIND), store.crash)

    # --- rules ------------------------------------------------------------------------------

    def state(self) -> Hashable:
        """Return the numbers of waits, of kept keys by process, of histories and of values."""
        waiting = sum(not wait.future.done() for wait in self.waits)
        kept = tuple(process.statistics().keys for process in self.processes)
        return (min(waiting, 12), kept, min(self.history, 3), len(self.confirmed))

    async def finish(self) -> None:
        """End all faults; every wait whose value was confirmed must then be complete."""
        self.stores[0].lose_answers(0)
        await asyncio.sleep(20.0)
        self.stores[0].come_back()
        await asyncio.sleep(120.0)
        for wait in self.waits:
            if wait.least <= self.confirmed.get(wait.key, -1):
                assert wait.future.done(), f"the wait for {wait.key} >= {wait.least} was missed"
        self.is_open = False
        for process, purgatory in zip(self.processes, self.purgatories, strict=True):
            await process.aclose()
            await purgatory.aclose()
        await self.settle()
        assert all(wait.future.done() for wait in self.waits)
