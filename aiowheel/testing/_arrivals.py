"""Who waits for the clock to arrive at an instant with everything done. Rank 4."""

from __future__ import annotations

import heapq
from asyncio import Future
from itertools import count


class Arrivals:
    """The open calls of `advance`, by the instant they lead to."""

    def __init__(self) -> None:
        self._calls = count()
        #: (instant in ns, number of the call, its future), a heap.
        self._heap: list[tuple[int, int, Future[None]]] = []

    def add(self, instant_ns: int, future: Future[None]) -> Future[None]:
        """File *future*; returns it."""
        heapq.heappush(self._heap, (instant_ns, next(self._calls), future))
        return future

    def next_instant(self) -> int | None:
        """The earliest one somebody still waits for."""
        while self._heap and self._heap[0][2].done():  # cancelled
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def settle(self) -> None:
        """The clock has arrived at `next_instant`: let the first of those who wait for it go on."""
        future = heapq.heappop(self._heap)[2]
        if not future.done():  # the handler of a signal may have cancelled it since we were asked
            future.set_result(None)
