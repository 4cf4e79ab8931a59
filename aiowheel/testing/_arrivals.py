"""The pending calls of `advance`. Rank 4."""

from __future__ import annotations

import heapq
from asyncio import Future
from itertools import count


class Arrivals:
    """The pending calls of `advance`, ordered by the instant to which each one moves the clock."""

    def __init__(self) -> None:
        self._calls = count()
        #: (instant in ns, number of the call, its future), a heap.
        self._heap: list[tuple[int, int, Future[None]]] = []

    def add(self, instant_ns: int, future: Future[None]) -> Future[None]:
        """Add *future* and return it."""
        heapq.heappush(self._heap, (instant_ns, next(self._calls), future))
        return future

    def next_instant(self) -> int | None:
        """Return the earliest instant of a call that is still pending, or None."""
        while self._heap and self._heap[0][2].done():  # cancelled
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def settle(self) -> None:
        """Complete the first call for `next_instant`, which the clock has reached."""
        future = heapq.heappop(self._heap)[2]
        if not future.done():  # a signal handler may have cancelled it after `next_instant`
            future.set_result(None)
