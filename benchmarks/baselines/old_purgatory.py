"""Kafka's purgatory before 2015: timers in a heap, and a reaper that purges completed ones.

A completed request stays in the heap and in every watch list until its deadline, or until a number
of requests has arrived and the reaper purges: it then visits every entry.
"""

import heapq
from collections.abc import Hashable, Sequence
from itertools import count
from time import monotonic

from benchmarks.baselines._parking import Parked


class OldPurgatory:
    """A `Parking`; purges after every *purge_interval* requests, Kafka's default being 1,000."""

    def __init__(self, timeout: float, purge_interval: int = 1_000) -> None:
        self.expired: int = 0
        self._timeout = timeout
        self._purge_interval = purge_interval
        self._arrivals = 0  # since the last purge
        self._order = count()
        self._heap: list[tuple[float, int, Parked]] = []
        self._watchers: dict[Hashable, list[Parked]] = {}

    def park(self, request: Parked, keys: Sequence[Hashable]) -> None:
        """Watch every key and arm the timeout."""
        for key in keys:
            self._watchers.setdefault(key, []).append(request)
        heapq.heappush(self._heap, (monotonic() + self._timeout, next(self._order), request))
        self._arrivals += 1

    def check(self, key: Hashable) -> None:
        """Complete the ready requests, and remove completed ones from this watch list."""
        watchers = self._watchers.get(key)
        if watchers is None:
            return
        for request in watchers:
            if request.ready and not request.done:
                request.done = True
        self._keep_waiting(key, watchers)

    def force(self, request: Parked) -> None:
        """Mark the request as completed."""
        request.done = True

    def turn(self, now: float) -> None:
        """Run the reaper: expire due requests, and purge after enough arrivals."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            request = heapq.heappop(heap)[2]
            if not request.done:
                request.done = True
                self.expired += 1
        if self._arrivals >= self._purge_interval:
            self._arrivals = 0
            self._purge()

    def _purge(self) -> None:
        self._heap = [item for item in self._heap if not item[2].done]
        heapq.heapify(self._heap)
        for key, watchers in list(self._watchers.items()):
            self._keep_waiting(key, watchers)

    def _keep_waiting(self, key: Hashable, watchers: list[Parked]) -> None:
        waiting = [request for request in watchers if not request.done]
        if waiting:
            self._watchers[key] = waiting
        else:
            del self._watchers[key]
