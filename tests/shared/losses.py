"""The count of wake-ups that a fault loses, while another process publishes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress

from aiowheel import Purgatory
from aiowheel.shared import (
    CounterPage,
    CounterStore,
    EpochChangedError,
    HintListener,
    SharedCounters,
)

PATIENCE = 120.0  # seconds; long, because a late wake-up is not a lost one

Connect = Callable[[], CounterStore]
Fault = Callable[[], Coroutine[object, object, None]]


class Progress:
    """The publishes so far, for listeners that subscribe again late."""

    def __init__(self) -> None:
        self._begun = 0
        self._over = False
        self._missed: list[_Missed] = []

    def begin(self) -> None:
        """Expect publishes."""
        self._over = False

    def begin_publish(self) -> int:
        """Return the number of a new publish, which is acknowledged later."""
        self._begun += 1
        return self._begun

    def published(self, number: int) -> None:
        """Note the acknowledgement of a publish."""
        for missed in self._missed:
            missed.published(number)

    def end(self) -> None:
        """Expect no more publishes."""
        self._over = True
        for missed in self._missed:
            missed.enough.set()

    async def more(self, count: int) -> None:
        """Wait for *count* publishes that begin from now on, or for the end of all publishes."""
        if self._over:
            return
        # A publish that began before may have sent its hint before the listener was lost.
        missed = _Missed(self._begun, count)
        self._missed.append(missed)
        await missed.enough.wait()
        self._missed.remove(missed)

    def delay(self, method: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        """Return *method*, which subscribes a store; later calls miss some publishes first."""
        subscribed: set[object] = set()

        async def late(store: object, *arguments: object) -> object:
            if store in subscribed:
                await self.more(20)
            subscribed.add(store)
            return await method(store, *arguments)

        return late


class _Missed:
    """The publishes that one listener misses: *count* of those after number *last*."""

    def __init__(self, last: int, count: int) -> None:
        self._last = last
        self._left = count
        self.enough = asyncio.Event()

    def published(self, number: int) -> None:
        """Count one publish."""
        self._left -= number > self._last
        if self._left <= 0:
            self.enough.set()


class WithoutReading:
    """A store that reports no gaps, to prove that a test finds losses.

    Its epoch never changes, because a changed epoch would also reveal a gap.
    """

    def __init__(self, store: CounterStore) -> None:
        self._store = store
        self._listener: HintListener | None = None
        self._epoch = ""

    def hint(self, epoch: str, values: Mapping[str, int]) -> None:
        """Pass a hint to the listener, with the constant epoch."""
        assert self._listener is not None
        self._listener.hint(self._epoch or epoch, values)

    def gap(self) -> None:
        """Do nothing."""

    async def open(self, listener: HintListener) -> None:
        """Subscribe this object instead of the listener."""
        self._listener = listener
        await self._store.open(self)

    async def raise_to(self, values: Mapping[str, int]) -> str:
        """Call the same method of the store."""
        return await self._store.raise_to(values)

    async def add_one(self, keys: Collection[str]) -> str:
        """Call the same method of the store."""
        return await self._store.add_one(keys)

    async def read(self, keys: Collection[str]) -> tuple[str, dict[str, int]]:
        """Call the same method of the store."""
        epoch, values = await self._store.read(keys)
        self._epoch = self._epoch or epoch
        return self._epoch, values

    async def scan(self, prefix: str, after: str = "", limit: int = 1000) -> CounterPage:
        """Call the same method of the store."""
        return await self._store.scan(prefix, after, limit)

    async def compare_and_raise(
        self, changes: Mapping[str, tuple[int | None, int | None]]
    ) -> tuple[str, set[str]]:
        """Call the same method of the store."""
        return await self._store.compare_and_raise(changes)

    async def now_ms(self) -> int:
        """Call the same method of the store."""
        return await self._store.now_ms()

    async def forget(self, keys: Collection[str]) -> None:
        """Call the same method of the store."""
        await self._store.forget(keys)

    async def aclose(self) -> None:
        """Call the same method of the store."""
        await self._store.aclose()


async def losses(
    connect: Connect,
    fault: Fault,
    *,
    count: int,
    seed: int,
    reading: bool = True,
    publisher: Connect | None = None,
    progress: Progress | None = None,
) -> int:
    """Count the waits that never end although their counters were raised.

    One process waits for *count* keys. Another process publishes them in random order and in
    bursts, while *fault* runs repeatedly. After `EpochChangedError`, the waiting process reads the
    data and waits again, as an application does.

    Args:
        connect: Returns a store for the waiting process.
        fault: Causes a fault and ends it.
        count: The number of keys, each with one wait and one publish.
        seed: The seed of order and bursts.
        reading: Whether the waiting process reads after gaps; if not, losses are expected.
        publisher: Returns the store of the publishing process; default: *connect*.
        progress: Counts the publishes.
    """
    progress = progress or Progress()
    progress.begin()
    rng = random.Random(seed)
    keys = [f"{seed} {number}" for number in range(count)]
    order = rng.sample(keys, count)
    data: set[str] = set()
    store = connect() if reading else WithoutReading(connect())
    async with (
        Purgatory("waits") as purgatory,
        Purgatory("publishes") as other,
        SharedCounters(purgatory, store, patience=PATIENCE) as waiting,
        SharedCounters(other, (publisher or connect)(), patience=PATIENCE) as publishing,
    ):

        async def wait(key: str) -> None:
            while True:
                try:
                    assert await waiting.wait_until({key: 1}, None)
                except EpochChangedError:
                    if key not in data:
                        continue
                return

        async def publish(key: str) -> None:
            data.add(key)
            number = progress.begin_publish()
            await publishing.advance(key, 1)
            progress.published(number)

        waits = [asyncio.create_task(wait(key)) for key in keys]
        await waiting.value(keys[-1])
        publishes: list[asyncio.Task[None]] = []
        faulty = asyncio.create_task(fault())
        while order:
            burst = min(len(order), rng.randint(1, max(2, count // 40)))
            publishes += [asyncio.create_task(publish(order.pop())) for _ in range(burst)]
            # The last burst follows the fault, so that only the fault causes losses.
            if len(order) < count // 10 and not faulty.done():
                await faulty
            await asyncio.sleep(rng.random() * 0.02)
        await faulty
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*publishes)
        progress.end()
        await _hints_have_arrived(waiting, publishing)
        if reading:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await asyncio.gather(*waits)
        lost = sum(not each.done() for each in waits)
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        return lost


async def _hints_have_arrived(waiting: SharedCounters, publishing: SharedCounters) -> None:
    """Wait until a new hint arrives: all earlier hints have then arrived or are lost."""
    number = 0
    while True:
        number += 1
        arrived = waiting.wait_until({"marker": number}, 0.5)
        await publishing.advance("marker", number)
        with suppress(EpochChangedError):
            if await arrived:
                return
