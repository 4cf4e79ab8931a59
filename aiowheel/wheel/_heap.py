"""The wheel's interface on a binary heap: the tests' oracle and the benchmarks' baseline. Rank 0.

It is simple on purpose: cancelled entries stay in the heap until they reach its top, as in the
standard library's event loop and in Kafka's purgatory before 2015. It is compiled with the wheel,
so that the two differ only in their structure.
"""

from __future__ import annotations

import heapq
from itertools import count

from aiowheel._arguments import checked_int
from aiowheel.wheel._wheel import LIMIT, checked_deadline, checked_now, checked_wheel_size


class HeapEntry:
    """A deadline in a `HeapWheel`, with the interface of `TimerEntry`."""

    __slots__ = ("deadline", "generation", "payload", "wheel")

    def __init__(self, deadline: int, payload: object) -> None:
        self.deadline: int = deadline
        self.payload: object = payload
        self.generation: int = 0  # that of the current heap item; older items are tombstones
        self.wheel: HeapWheel | None = None

    @property
    def pending(self) -> bool:
        return self.wheel is not None

    def cancel(self) -> bool:
        if self.wheel is None:
            return False
        self.wheel.pending_count -= 1
        self.wheel = None
        self.payload = None
        return True


class HeapWheel:
    """A binary heap with the interface of `TimingWheel`: O(log n) to add, tombstones on cancel.

    Entries are returned by tick and, within a tick, in the order they were armed or last moved.
    """

    def __init__(self, tick: int = 1, wheel_size: int = 256, start: int = 0) -> None:
        checked_int("tick", tick, 1, LIMIT)
        checked_wheel_size(wheel_size)
        checked_int("start", start, -LIMIT, LIMIT)
        self.tick = tick
        self.now: int = start
        self.pending_count: int = 0
        self._order = count()
        self._heap: list[tuple[int, int, HeapEntry]] = []  # (tick, generation, entry)

    def schedule(self, deadline: int, payload: object = None) -> HeapEntry:
        entry = HeapEntry(deadline, payload)
        self.reschedule(entry, deadline)
        return entry

    def reschedule(self, entry: HeapEntry, deadline: int) -> None:
        checked_deadline(deadline)
        if entry.wheel is None:
            entry.wheel = self
            self.pending_count += 1
        entry.deadline = deadline
        entry.generation = next(self._order)
        current = self.now // self.tick
        tick = current if deadline <= self.now else max(current, -(-deadline // self.tick))
        heapq.heappush(self._heap, (tick, entry.generation, entry))

    def advance(self, now: int) -> list[HeapEntry]:
        checked_now(now, self.now)
        self.now = now
        last = -(-now // self.tick) if now == LIMIT else now // self.tick
        due: list[HeapEntry] = []
        while (tick := self._next_tick()) is not None and tick <= last:
            entry = heapq.heappop(self._heap)[2]
            entry.wheel = None
            due.append(entry)
        self.pending_count -= len(due)
        return due

    def next_expiration(self) -> int | None:
        tick = self._next_tick()
        return None if tick is None else min(max(self.now, tick * self.tick), LIMIT)

    def _next_tick(self) -> int | None:
        while self._heap:
            tick, generation, entry = self._heap[0]
            if entry.wheel is self and entry.generation == generation:
                return tick
            heapq.heappop(self._heap)
        return None

    def __len__(self) -> int:
        return self.pending_count
