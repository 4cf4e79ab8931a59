"""Which partitions of the idle keys this process owns. Rank 4.

Source: the leases of Gray and Cheriton 1989, and the consumers of Kafka, which share partitions.
A lease is a counter: the time at which it ends, above the number of its owner. An owner raises it
before it ends; another process may raise it afterwards. Each process has a lease of one seat as
well, so that all know how many there are, and what their share is. There are as many seats as
partitions: a process more than that owns nothing until a seat is free.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from aiowheel._events import emit_info
from aiowheel.errors import StoreUnavailableError
from aiowheel.shared._backoff import Backoff
from aiowheel.shared._idle_keys import PARTITIONS, IdleNames
from aiowheel.shared._store import CounterStore
from aiowheel.shared._store_clock import StoreClock
from aiowheel.timer import Timer

_NUMBER_BITS = 20  # of a process; the milliseconds have the other 43
_NUMBERS = 2**_NUMBER_BITS - 1
_SOON = 0.25  # seconds between two renewals, at least

Changes = dict[str, tuple[int | None, int | None]]


@dataclass(slots=True)
class _Plan:
    """What one renewal changes.

    Attributes:
        changes: For the store.
        sure: Partitions whose leases last long enough as they are.
        kept: Partitions whose leases are renewed.
        taken: Partitions without an owner that become ours.
        given: Partitions beyond our share, for others to take.
    """

    changes: Changes = field(default_factory=dict)
    sure: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    given: list[str] = field(default_factory=list)


class IdleLeases:
    """The leases of one process.

    Args:
        timer: Measures how long the leases last.
        store: Where the leases are.
        names: Of the counters.
        clock: The store's; gets its time.
        lease: Seconds that a lease lasts.
        saw: Called with the epoch of each listing and write; returns whether it is the known one.
        renewed: Called after each renewal with the partitions that were gained and lost.
        failed: Called with the name and the error of each renewal that failed.
        clock_was_set: Called when the store's clock jumped.

    Attributes:
        held: The partitions that this process owns, while `valid()`.
    """

    def __init__(
        self,
        timer: Timer,
        store: CounterStore,
        names: IdleNames,
        clock: StoreClock,
        lease: float,
        *,
        saw: Callable[[str], bool],
        renewed: Callable[[Collection[str], Collection[str]], object],
        failed: Callable[[str, Exception], object],
        clock_was_set: Callable[[], object],
    ) -> None:
        self._timer = timer
        self._store = store
        self._clock = clock
        self._lease = lease
        self._saw = saw
        self._renewed = renewed
        self._failed = failed
        self._clock_was_set = clock_was_set
        self._leases = {part: f"{names.control}{part}" for part in PARTITIONS}
        self._seats = [f"{names.control}seat-{part}" for part in PARTITIONS]
        self._news = f"{names.control}news"
        self._counters = [*self._leases.values(), *self._seats, self._news]
        self._number = random.randint(0, _NUMBERS)  # noqa: S311 - no secret
        self._processes: set[int] = set()  # the numbers of those that have a seat
        self.held: set[str] = set()
        self._valid_until = float("-inf")
        self._begun = float("-inf")
        self._wanted = asyncio.Event()
        self._has_news = False  # partitions were given that the other processes may not know of

    def valid(self) -> bool:
        """Return whether no other process may own the partitions that are held."""
        return self._timer.time() < self._valid_until

    def renew_soon(self) -> None:
        """Have the leases renewed before it is time."""
        self._wanted.set()

    def hint(self, counter: str, value: int) -> None:
        """Take note that a counter of leases or seats was raised."""
        if counter == self._news or value & _NUMBERS not in self._processes:
            self.renew_soon()

    def drop_all(self) -> None:
        """Own nothing any more: the store has lost the leases."""
        lost, self.held = self.held, set()
        self._valid_until = float("-inf")
        self._renewed((), lost)
        self.renew_soon()

    # --- the task -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Renew until cancelled."""
        backoff = Backoff()
        while True:
            pause = self._lease / 3
            async with self._timer.move_on_after(pause):
                await self._wanted.wait()
            # Many processes that begin together have much news, which one renewal hears at once.
            await self._timer.sleep(self._begun + min(pause / 10, _SOON) - self._timer.time())
            self._wanted.clear()
            try:
                await self.renew()
            except Exception as error:
                self._failed("renew", error)
                await self._timer.sleep(min(backoff.next(), pause))
                self._wanted.set()
            else:
                backoff.reset()

    async def join(self) -> None:
        """Take the first share, under a number that no other process has.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        _, counters = await self._store.read(self._counters)
        taken = {value & _NUMBERS for value in counters.values()}
        while self._number in taken:
            self._number = random.randint(0, _NUMBERS)  # noqa: S311
        await self.renew()

    async def renew(self) -> None:
        """Renew once, take what is free, and give what is beyond the share.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        self._begun = self._timer.time()
        now = await self._store.now_ms()
        if self._clock.observe(now, self._begun):
            self._clock_was_set()
        epoch, counters = await self._store.read(self._counters)
        self._saw(epoch)
        now = self._clock.now_ms()
        ends = now + int(self._lease * 1000)
        plan = self._plan(counters, now, ends)
        self._give(plan.given)
        epoch, changed = await self._store.compare_and_raise(plan.changes)
        if not self._saw(epoch):
            return
        if len(changed) < len(plan.changes):  # another process was faster
            self.renew_soon()
        held = {part for part in plan.kept + plan.taken if self._leases[part] in changed}
        held.update(plan.sure)
        # A tenth earlier than others may take them: clocks and answers are not exact.
        self._valid_until = self._clock.on_timer(ends) - self._lease / 10
        gained, lost = held - self.held, self.held - held
        self.held = held
        self._renewed(gained, lost)
        if gained or lost or plan.given:
            emit_info(
                "aiowheel.shared_idle_partitions_changed",
                gained=sorted(gained),
                lost=sorted(lost.union(plan.given)),
                partitions=len(held),
            )
        if self._has_news:
            await self._tell()

    def _give(self, parts: Collection[str]) -> None:
        """Stop firing from partitions before another process can take them."""
        if parts:
            self._has_news = True  # also where the answer of the write is lost
            self.held.difference_update(parts)
            self._renewed((), parts)

    async def _tell(self) -> None:
        """Have the other processes look for partitions without an owner.

        Not in the write that gives them: of two processes that raise the counter from one value at
        the same time, one would raise it in vain.
        """
        await self._store.add_one([self._news])
        self._has_news = False

    def _plan(self, counters: Mapping[str, int], now: int, ends: int) -> _Plan:
        """Return what to change, by the counters of leases and seats."""
        plan = _Plan()
        value = ends << _NUMBER_BITS | self._number
        seat = self._take_seat(counters, now)
        if seat is not None:
            _raise(plan.changes, counters, seat, value)
        share = -(-len(PARTITIONS) // len(self._processes))
        mine, free = self._mine_and_free(counters, now)
        # A clock that was set back must not lower a lease.
        plan.sure = [part for part in mine[:share] if counters[self._leases[part]] >= value]
        plan.kept = [part for part in mine[:share] if part not in plan.sure]
        plan.given = mine[share:]
        if seat is not None:
            plan.taken = random.sample(free, min(len(free), share - len(mine[:share])))
        for part in plan.kept + plan.taken:
            _raise(plan.changes, counters, self._leases[part], value)
        for part in plan.given:
            plan.changes[self._leases[part]] = (counters[self._leases[part]], None)
        return plan

    def _take_seat(self, counters: Mapping[str, int], now: int) -> str | None:
        """Count the processes that have a seat, and return ours, or one that is free."""
        free: list[str] = []
        ours: str | None = None
        self._processes = {self._number}
        for seat in self._seats:
            value = counters.get(seat, 0)
            if value & _NUMBERS == self._number:
                ours = seat
            elif value >> _NUMBER_BITS > now:
                self._processes.add(value & _NUMBERS)
            else:
                free.append(seat)
        if ours is None and free:
            ours = random.choice(free)  # noqa: S311
        return ours

    def _mine_and_free(self, counters: Mapping[str, int], now: int) -> tuple[list[str], list[str]]:
        """Return the partitions whose leases are ours, and those that have no owner."""
        mine: list[str] = []
        free: list[str] = []
        for part, name in self._leases.items():
            lease = counters.get(name)
            if lease is not None and lease & _NUMBERS == self._number:
                mine.append(part)
            elif lease is None or lease >> _NUMBER_BITS <= now:
                free.append(part)
        mine.sort(key=self.held.__contains__, reverse=True)
        return mine, free

    async def leave(self) -> None:
        """Give everything to the other processes; without an answer they wait for the leases' end.

        The task that renews has ended.
        """
        lost, self.held = self.held, set()
        self._valid_until = float("-inf")
        self._renewed((), lost)
        try:
            _, counters = await self._store.read(self._counters)
            changes: Changes = {
                name: (value, None)
                for name, value in counters.items()
                if name != self._news and value & _NUMBERS == self._number
            }
            await self._store.compare_and_raise(changes)
            await self._tell()
        except StoreUnavailableError:
            return


def _raise(changes: Changes, counters: Mapping[str, int], name: str, value: int) -> None:
    """Add to *changes* that a counter is raised, if it is lower."""
    if counters.get(name, -1) < value:
        changes[name] = (counters.get(name), value)
