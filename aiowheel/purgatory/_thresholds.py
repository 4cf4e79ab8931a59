"""Waiting for counters to reach thresholds: offsets, versions, high watermarks. Rank 2.

Source: the threshold purgatory of Kafka's raft client, for several keys. A check costs what it
completes, not what waits: each key has its waiters in a heap by threshold.
"""

from __future__ import annotations

import heapq
from typing import Final

from mypy_extensions import i64

from aiowheel.purgatory._operation import Operation
from aiowheel.purgatory._outcome import Outcome

_SLACK: Final = 32  # tombstones a heap may hold before they are counted against its size


class Counter:
    """The value of one key and who waits for more."""

    __slots__ = ("_heap", "_order", "key", "live", "value")

    def __init__(self, key: object) -> None:
        self.key = key
        self.value: int | float | None = None  # None: never advanced
        self.live: i64 = 0
        self._order = 0
        self._heap: list[tuple[int | float, int, Threshold]] = []  # (threshold, arrival, who)

    def reached(self, threshold: int | float) -> bool:
        """Whether the counter stands at *threshold* or beyond."""
        return self.value is not None and self.value >= threshold

    def add(self, operation: ThresholdOperation, threshold: int | float) -> Threshold:
        """Have *operation* wait for *threshold*. O(log waiters)."""
        waiting = Threshold(operation, self)
        self._order += 1
        heapq.heappush(self._heap, (threshold, self._order, waiting))
        self.live += 1
        return waiting

    def pop_reached(self) -> ThresholdOperation | None:
        """Take the next operation whose threshold is reached, lowest first. O(log waiters)."""
        heap = self._heap
        while heap and (heap[0][2].operation is None or self.reached(heap[0][0])):
            waiting = heapq.heappop(heap)[2]
            operation = waiting.operation
            if operation is not None:
                waiting.leave()
                return operation
        return None

    def operations(self) -> list[ThresholdOperation]:
        """Who waits, in no particular order."""
        found: list[ThresholdOperation] = []
        for _, _, waiting in self._heap:
            if waiting.operation is not None:
                found.append(waiting.operation)
        return found

    def compact(self) -> None:
        """Throw the tombstones out when they outnumber the waiters: O(1) per waiter that left."""
        if len(self._heap) > 2 * self.live + _SLACK:
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
