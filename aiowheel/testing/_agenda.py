"""The timers of a virtual loop, by the instant they are due. Rank 4.

asyncio's heap compares only the time, so timers due at one instant run in any order. The agenda
runs them in the order in which they were armed, or in an order drawn from a seed.
"""

from __future__ import annotations

import heapq
from asyncio import TimerHandle
from itertools import count
from random import Random

from aiowheel._units import FOREVER

_SPARE = 1_000  # cancelled handles that may stay, plus one for each pending handle


class Agenda:
    """A heap of timer handles that skips the cancelled ones.

    Args:
        seed: Seed of the order of handles due at one instant; None keeps the order in which they
            were armed.
    """

    def __init__(self, seed: int | None) -> None:
        self._random = None if seed is None else Random(seed)  # noqa: S311 - repeatable on purpose
        self._arming = count()
        #: (due in ns, draw, number in order of arming, handle), a heap.
        self._heap: list[tuple[int, int, int, TimerHandle]] = []
        self._sweep_at = _SPARE

    def add(self, due_ns: int, handle: TimerHandle) -> None:
        """Add *handle*. O(log n)."""
        draw = 0 if self._random is None else self._random.getrandbits(32)
        heapq.heappush(self._heap, (due_ns, draw, next(self._arming), handle))
        if len(self._heap) > self._sweep_at:
            self._heap = [item for item in self._heap if not item[3].cancelled()]
            heapq.heapify(self._heap)
            self._sweep_at = 2 * len(self._heap) + _SPARE

    def next_due(self) -> int | None:
        """Return the instant of the earliest pending handle; None if no handle is ever due."""
        heap = self._heap
        while heap and heap[0][3].cancelled():
            heapq.heappop(heap)
        return heap[0][0] if heap and heap[0][0] < FOREVER else None

    def pop_due(self, now_ns: int) -> list[TimerHandle]:
        """Remove and return the handles due at *now_ns*, in order."""
        heap = self._heap
        due: list[TimerHandle] = []
        while heap and heap[0][0] <= now_ns:
            handle = heapq.heappop(heap)[3]
            if not handle.cancelled():
                due.append(handle)
        return due

    def pending(self) -> int:
        """Return the number of pending handles. O(n): for error texts."""
        return sum(not item[3].cancelled() for item in self._heap)
