"""The leases by which processes share the partitions of the idle keys. Rank 4.

Source: the leases of Gray and Cheriton 1989, and the consumers of Kafka, which share partitions.
A lease is a counter: its high bits are the time at which the lease ends, its low bits the number of
its owner. The owner raises the counter before that time; another process may raise it afterwards.
Each process also leases one seat. The number of leased seats is the number of processes, which
gives each process its share. There are as many seats as partitions: an additional process owns
nothing until a seat is free.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from aiowheel._events import emit_info
from aiowheel.errors import StoreUnavailableError
from aiowheel.shared._backoff import Backoff
from aiowheel.shared._idle_names import PARTITIONS, IdleNames
from aiowheel.shared._store import CounterStore
from aiowheel.shared._store_clock import StoreClock
from aiowheel.timer import Timer

_NUMBER_BITS = 20  # for the number of a process; the milliseconds have the other 43 bits
_NUMBERS = 2**_NUMBER_BITS - 1
_SOON = 0.25  # least number of seconds between two renewals

Changes = dict[str, tuple[int | None, int | None]]


@dataclass(slots=True)
class _Plan:
    """The changes of one renewal.

    Attributes:
        changes: The counters to change in the store.
        sure: Partitions whose leases already last long enough.
        kept: Partitions whose leases are renewed.
        taken: Partitions without an owner that this process takes.
        released: Partitions beyond this process's share, which other processes may take.
    """

    changes: Changes = field(default_factory=dict)
    sure: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)


class IdleLeases:
    """The leases of one process.

    Args:
        timer: Measures how long the leases last.
        store: The store that holds the leases.
        names: The names of the counters.
        clock: The estimate of the store's clock; each renewal corrects it.
        lease: Seconds that a lease lasts.
        saw: Called with the epoch of each read and write; returns whether it is the known one.
        renewed: Called after each renewal with the partitions that were gained and lost.
        failed: Called with the name and the error of each renewal that failed.
        clock_was_set: Called when the store's clock has jumped.

    Attributes:
        held: The partitions that this process owns while `valid()` returns True.
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
        self._must_notify = False  # the other processes were not notified of released partitions

    def valid(self) -> bool:
        """Return whether it is certain that no other process owns the held partitions."""
        return self._timer.time() < self._valid_until

    def renew_soon(self) -> None:
        """Request a renewal before the regular one is due."""
        self._wanted.set()

    def hint(self, counter: str, value: int) -> None:
        """Request a renewal if a hint shows a new process or released partitions."""
        if counter == self._news or value & _NUMBERS not in self._processes:
            self.renew_soon()

    def drop_all(self) -> None:
        """Give up all partitions, because the store has lost the leases."""
        lost, self.held = self.held, set()
        self._valid_until = float("-inf")
        self._renewed((), lost)
        self.renew_soon()

    # --- the task -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Renew the leases until cancelled."""
        backoff = Backoff()
        while True:
            pause = self._lease / 3
            async with self._timer.move_on_after(pause):
                await self._wanted.wait()
            # Many processes that start together send many hints; one renewal handles them all.
            await self._timer.sleep(self._begun + min(pause / 10, _SOON) - self._timer.time())
            self._wanted.clear()
            try:
                await self.renew()
            except asyncio.CancelledError:
                self._wanted.set()  # the task may start again
                raise
            except Exception as error:
                self._failed("renew", error)
                await self._timer.sleep(min(backoff.next(), pause))
                self._wanted.set()
            else:
                backoff.reset()

    async def join(self) -> None:
        """Choose a number that no other process has, and take the first share of partitions.

        Raises:
            StoreUnavailableError: The store does not answer.
        """
        _, counters = await self._store.read(self._counters)
        taken = {value & _NUMBERS for value in counters.values()}
        while self._number in taken:
            self._number = random.randint(0, _NUMBERS)  # noqa: S311
        await self.renew()

    async def renew(self) -> None:
        """Renew the leases once, take free partitions, and release those beyond the share.

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
        self._release(plan.released)
        epoch, changed = await self._store.compare_and_raise(plan.changes)
        if not self._saw(epoch):
            return
        if len(changed) < len(plan.changes):  # another process was faster
            self.renew_soon()
        held = {part for part in plan.kept + plan.taken if self._leases[part] in changed}
        held.update(plan.sure)
        # Ownership ends a tenth of a lease early, because the estimate of the clock is not exact.
        self._valid_until = self._clock.on_timer(ends) - self._lease / 10
        gained, lost = held - self.held, self.held - held
        self.held = held
        self._renewed(gained, lost)
        if gained or lost or plan.released:
            emit_info(
                "aiowheel.shared_idle_partitions_changed",
                gained=sorted(gained),
                lost=sorted(lost.union(plan.released)),
                partitions=len(held),
            )
        if self._must_notify:
            await self._notify()

    def _release(self, parts: Collection[str]) -> None:
        """Stop firing from partitions before another process can take them."""
        if parts:
            self._must_notify = True  # even if the answer to the write is lost
            self.held.difference_update(parts)
            self._renewed((), parts)

    async def _notify(self) -> None:
        """Make the other processes search for partitions without an owner.

        It is a write of its own. As part of `compare_and_raise`, it would fail for one of two
        processes that raise the counter from the same value at the same time.
        """
        await self._store.add_one([self._news])
        self._must_notify = False

    def _plan(self, counters: Mapping[str, int], now: int, ends: int) -> _Plan:
        """Return the changes that follow from the counters of leases and seats."""
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
        plan.released = mine[share:]
        if seat is not None:
            plan.taken = random.sample(free, min(len(free), share - len(mine[:share])))
        for part in plan.kept + plan.taken:
            _raise(plan.changes, counters, self._leases[part], value)
        for part in plan.released:
            plan.changes[self._leases[part]] = (counters[self._leases[part]], None)
        return plan

    def _take_seat(self, counters: Mapping[str, int], now: int) -> str | None:
        """Note the processes that have a seat; return this process's seat, or else a free one."""
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
        """Return the partitions that this process leases, and those that have no owner."""
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
        """Release all partitions and the seat.

        If the store does not answer, the other processes take the partitions when the leases end.
        The task of `run` must have ended before this call.
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
            await self._notify()
        except StoreUnavailableError:
            return


def _raise(changes: Changes, counters: Mapping[str, int], name: str, value: int) -> None:
    """Add the raise of a counter to *changes*, unless the counter is high enough already."""
    if counters.get(name, -1) < value:
        changes[name] = (counters.get(name), value)
