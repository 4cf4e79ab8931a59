"""How many wake-ups a fault costs: publishes under way while something breaks."""

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

PATIENCE = 120.0  # seconds; a lost wake-up is one that comes never, not one that comes late

Connect = Callable[[], CounterStore]
Fault = Callable[[], Coroutine[object, object, None]]


class Progress:
    """How many publishes have been made, for listeners that come back late."""

    def __init__(self) -> None:
        self._count = 0
        self._over = False
        self._news = asyncio.Event()

    def begin(self) -> None:
        """Expect publishes."""
        self._over = False

    def published(self, *, over: bool = False) -> None:
        """Count one publish; the last call says that no more will come."""
        self._count += 1
        self._over |= over
        self._news.set()

    async def more(self, count: int) -> None:
        """Wait for *count* more publishes."""
        wanted = self._count + count
        while self._count < wanted and not self._over:
            self._news.clear()
            await self._news.wait()

    def delay(self, method: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        """Return *method*, a store's subscribing, which misses some publishes when called again."""
        subscribed: set[object] = set()

        async def late(store: object, *arguments: object) -> object:
            if store in subscribed:
                await self.more(20)
            subscribed.add(store)
            return await method(store, *arguments)

        return late


class WithoutReading:
    """A store whose gaps go unnoticed: the proof that a test could find a loss.

    Its epoch seems to stay, for a change of that name is another way to notice.
    """

    def __init__(self, store: CounterStore) -> None:
        self._store = store
        self._listener: HintListener | None = None
        self._epoch = ""

    def hint(self, epoch: str, values: Mapping[str, int]) -> None:
        """Pass a hint on."""
        assert self._listener is not None
        self._listener.hint(self._epoch or epoch, values)

    def gap(self) -> None:
        """Do nothing."""

    async def open(self, listener: HintListener) -> None:
        """Listen in the middle."""
        self._listener = listener
        await self._store.open(self)

    async def raise_to(self, values: Mapping[str, int]) -> str:
        """Pass the call on."""
        return await self._store.raise_to(values)

    async def add_one(self, keys: Collection[str]) -> str:
        """Pass the call on."""
        return await self._store.add_one(keys)

    async def read(self, keys: Collection[str]) -> tuple[str, dict[str, int]]:
        """Pass the call on."""
        epoch, values = await self._store.read(keys)
        self._epoch = self._epoch or epoch
        return self._epoch, values

    async def scan(self, prefix: str, after: str = "", limit: int = 1000) -> CounterPage:
        """Pass the call on."""
        return await self._store.scan(prefix, after, limit)

    async def compare_and_raise(
        self, changes: Mapping[str, tuple[int | None, int | None]]
    ) -> tuple[str, set[str]]:
        """Pass the call on."""
        return await self._store.compare_and_raise(changes)

    async def now_ms(self) -> int:
        """Pass the call on."""
        return await self._store.now_ms()

    async def forget(self, keys: Collection[str]) -> None:
        """Pass the call on."""
        await self._store.forget(keys)

    async def aclose(self) -> None:
        """Pass the call on."""
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

    One process waits for *count* keys. Another one publishes them in random order and in bursts,
    while *fault* runs again and again. Waits that end with `EpochChangedError` look at the data, as
    an application does, and wait again.

    Args:
        connect: Makes a store of the waiting process.
        fault: Breaks something and mends it.
        count: Keys, each with one wait and one publish.
        seed: Of order and bursts.
        reading: False: the waiting process ignores gaps, and losses are expected.
        publisher: Makes the store of the publishing process; default: as *connect*.
        progress: Learns how many publishes have been made.
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
            await publishing.advance(key, 1)
            progress.published()

        waits = [asyncio.create_task(wait(key)) for key in keys]
        await waiting.value(keys[-1])
        publishes: list[asyncio.Task[None]] = []
        faulty = asyncio.create_task(fault())
        while order:
            burst = min(len(order), rng.randint(1, max(2, count // 40)))
            publishes += [asyncio.create_task(publish(order.pop())) for _ in range(burst)]
            # The last burst comes after the fault: losses are those of the fault alone.
            if len(order) < count // 10 and not faulty.done():
                await faulty
            await asyncio.sleep(rng.random() * 0.02)
        await faulty
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*publishes)
        progress.published(over=True)
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
    """Wait until a hint comes through: those before it came, too, or were lost."""
    number = 0
    while True:
        number += 1
        arrived = waiting.wait_until({"marker": number}, 0.5)
        await publishing.advance("marker", number)
        with suppress(EpochChangedError):
            if await arrived:
                return
