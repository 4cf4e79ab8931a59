"""Waiting for counters to reach thresholds: offsets, versions, high watermarks. Rank 2.

Source: the threshold purgatory of Kafka's raft client, for several keys. A check costs what it
completes, not what waits: each key has its waiters in order of threshold, those that came in that
order in a queue and the others in a heap.
"""

from __future__ import annotations

import heapq
from collections import deque
from itertools import chain, islice
from typing import Final

from mypy_extensions import i64

from aiowheel.purgatory._operation import Operation
from aiowheel.purgatory._outcome import Outcome

_SLACK: Final = 32  # tombstones a counter may hold before they are counted against its waiters


class Counter:
    """The value of one key and who waits for more."""

    __slots__ = ("_heap", "_order", "_queue", "key", "live", "value")

    def __init__(self, key: object) -> None:
        self.key = key
        self.value: int | float | None = None  # None: never advanced
        self.live: i64 = 0
        self._order = 0
        # Of each waiter the threshold, its place in the order of arrival, and who it is. Offsets
        # and versions grow, so most come with a threshold no less than that of the one before.
        self._queue: deque[tuple[int | float, int, Threshold]] = deque()  # ascending
        self._heap: list[tuple[int | float, int, Threshold]] = []  # who came with a lower one

    def __len__(self) -> int:
        """Waiters and tombstones."""
        return len(self._queue) + len(self._heap)

    def reached(self, threshold: int | float) -> bool:
        """Whether the counter stands at *threshold* or beyond."""
        return self.value is not None and self.value >= threshold

    def add(self, operation: ThresholdOperation, threshold: int | float) -> Threshold:
        """Have *operation* wait for *threshold*. O(1) in ascending order, else O(log waiters)."""
        waiting = Threshold(operation, self)
        self._order += 1
        item = (threshold, self._order, waiting)
        if not self._queue or threshold >= self._queue[-1][0]:
            self._queue.append(item)
        else:
            heapq.heappush(self._heap, item)
        self.live += 1
        return waiting

    def pop_reached(self) -> ThresholdOperation | None:
        """Take the next operation whose threshold is reached, lowest first; cost as of `add`."""
        queue, heap = self._queue, self._heap
        while queue or heap:
            from_queue = not heap or (len(queue) > 0 and queue[0] < heap[0])
            first = queue[0] if from_queue else heap[0]
            operation = first[2].operation
            if operation is not None and not self.reached(first[0]):
                return None
            if from_queue:
                queue.popleft()
            else:
                heapq.heappop(heap)
            if operation is not None:
                first[2].leave()
                return operation
        return None

    def operations(self) -> list[ThresholdOperation]:
        """Who waits, in no particular order."""
        found: list[ThresholdOperation] = []
        for _, _, waiting in [*self._queue, *self._heap]:
            if waiting.operation is not None:
                found.append(waiting.operation)
        return found

    def some(self, most: int) -> list[tuple[int | float, ThresholdOperation]]:
        """Of the first *most* places those that wait, with their thresholds. O(most)."""
        found: list[tuple[int | float, ThresholdOperation]] = []
        for threshold, _, waiting in islice(chain(self._queue, self._heap), most):
            if waiting.operation is not None:
                found.append((threshold, waiting.operation))
        return found

    def compact(self) -> None:
        """Throw the tombstones out when they outnumber the waiters: O(1) per waiter that left."""
        if len(self) > 2 * self.live + _SLACK:
            self._queue = deque([item for item in self._queue if item[2].operation is not None])
            self._heap = [item for item in self._heap if item[2].operation is not None]
            heapq.heapify(self._heap)


class Threshold:
    """One operation that waits for one counter."""

    __slots__ = ("counter", "operation")

    def __init__(self, operation: ThresholdOperation, counter: Counter) -> None:
        self.operation: ThresholdOperation | None = operation
        self.counter = counter

    def leave(self) -> None:
        """Wait no more; what stays in the heap pins nothing."""
        if self.operation is not None:
            self.operation = None
            self.counter.live -= 1


class ThresholdOperation(Operation):
    """Completes when its counters have reached their thresholds; made by `wait_until`."""

    def __init__(self, timeout: object, wanted: i64) -> None:
        super().__init__(timeout)
        self.wanted = wanted  # how many more counters must be reached
        self.waiting: list[Threshold] = []

    def try_complete(self) -> bool:
        return self.wanted <= 0

    def on_complete(self) -> bool:
        return self._outcome is Outcome.COMPLETED
