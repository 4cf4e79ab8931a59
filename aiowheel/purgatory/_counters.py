"""Counters by key, and operations that wait for them to reach thresholds. Rank 2.

Counters are offsets, versions, high watermarks. Source: the threshold purgatory of Kafka's raft
client, here for several keys. The cost of `advance` depends on the operations that it completes,
not on the pending ones: each key has its waiters in order of threshold. Waiters that arrived in
that order are in a queue, the others in a heap.
"""

from __future__ import annotations

import heapq
from collections import deque
from itertools import chain, islice
from typing import Final

from mypy_extensions import i64

from aiowheel._arguments import refuse_unhashable
from aiowheel.purgatory._operation import Operation, Outcome

_SLACK: Final = 32  # tombstones that a counter may hold before it compares them with its waiters
_COMPLETED: Final = Outcome.COMPLETED


class ThresholdOperation(Operation):
    """An operation that completes when counters reach thresholds; `wait_until` creates it."""

    def __init__(self, timeout: object, wanted: i64) -> None:
        super().__init__(timeout)
        self.wanted = wanted  # the number of counters that must still reach their thresholds
        self.waiting: list[Threshold] = []

    def set_timeout_ns(self, timeout_ns: i64) -> None:
        """Replace the timeout, before the operation is watched, by exactly *timeout_ns*."""
        self._timeout_ns = timeout_ns

    def try_complete(self) -> bool:
        return self.wanted <= 0

    def on_complete(self) -> bool:
        return self._outcome is _COMPLETED


class Threshold:
    """The wait of one operation for one counter."""

    __slots__ = ("counter", "operation")

    def __init__(self, operation: ThresholdOperation, counter: Counter) -> None:
        self.operation: ThresholdOperation | None = operation
        self.counter = counter

    def leave(self) -> None:
        """Drop the operation; this object stays in the queue or heap as a tombstone."""
        self.operation = None
        self.counter.live -= 1


class Counter:
    """The value of one key and the operations that wait for a greater one."""

    __slots__ = ("_aside", "_heap", "_queue", "arrivals", "key", "live", "value")

    def __init__(self, key: object) -> None:
        self.key = key
        self.value: int | float | None = None  # None: never advanced, or forgotten
        self.live: i64 = 0  # waiters
        self.arrivals = 0  # waiters ever added
        # Threshold, order of arrival, waiter. Offsets and versions grow, so most waiters arrive
        # with a threshold at or above the last one.
        self._queue: deque[tuple[int | float, int, Threshold]] = deque()  # ascending thresholds
        self._heap: list[tuple[int | float, int, Threshold]] = []  # the other waiters
        self._aside: list[tuple[int | float, int, Threshold]] = []  # see `pop_reached`

    def __len__(self) -> int:
        """The number of waiters and tombstones."""
        return len(self._queue) + len(self._heap)

    def is_unused(self) -> bool:
        """Return whether the counter has neither a value nor a waiter."""
        return self.live == 0 and self.value is None

    def reached(self, threshold: int | float) -> bool:
        """Return whether the counter is at least at *threshold*."""
        return self.value is not None and self.value >= threshold

    def add(self, operation: ThresholdOperation, threshold: int | float) -> Threshold:
        """Add a waiter for *threshold*. O(1) in ascending order, else O(log waiters)."""
        waiting = Threshold(operation, self)
        self.arrivals += 1
        item = (threshold, self.arrivals, waiting)
        if not self._queue or threshold >= self._queue[-1][0]:
            self._queue.append(item)
        else:
            heapq.heappush(self._heap, item)
        self.live += 1
        return waiting

    def pop_reached(self, value: int | float, arrivals: int) -> ThresholdOperation | None:
        """Remove and return the next operation that *value* reaches, lowest threshold first.

        The value is an argument, because an operation that this advance completes may call
        `forget`, which drops the counter's own value.
        Waiters that were added after the first *arrivals* wait for a later value: they are set
        aside until `put_back`. The cost is that of `add`.
        """
        queue, heap = self._queue, self._heap
        while queue or heap:
            from_queue = not heap or (len(queue) > 0 and queue[0] < heap[0])
            first = queue[0] if from_queue else heap[0]
            operation = first[2].operation
            if operation is not None and not value >= first[0]:
                return None
            if from_queue:
                queue.popleft()
            else:
                heapq.heappop(heap)
            if operation is not None:
                if first[1] > arrivals:
                    self._aside.append(first)
                    continue
                first[2].leave()
                return operation
        return None

    def put_back(self) -> None:
        """Put the waiters that `pop_reached` set aside back in their order."""
        while self._aside:
            heapq.heappush(self._heap, self._aside.pop())

    def operations(self) -> list[ThresholdOperation]:
        """Return the waiting operations, in no particular order."""
        found: list[ThresholdOperation] = []
        for _, _, waiting in [*self._queue, *self._heap, *self._aside]:
            if waiting.operation is not None:
                found.append(waiting.operation)
        return found

    def some(self, most: int) -> list[tuple[ThresholdOperation, int | float]]:
        """Return the waiters among the first *most* items, with their thresholds. O(most)."""
        found: list[tuple[ThresholdOperation, int | float]] = []
        for threshold, _, waiting in islice(chain(self._queue, self._heap), most):
            if waiting.operation is not None:
                found.append((waiting.operation, threshold))
        return found

    def compact(self) -> None:
        """Remove the tombstones if they outnumber the waiters. O(1) for each removed waiter."""
        if len(self) > 2 * self.live + _SLACK:
            # In place, because `pop_reached` may be running.
            queue = [item for item in self._queue if item[2].operation is not None]
            self._queue.clear()
            self._queue.extend(queue)
            self._heap[:] = [item for item in self._heap if item[2].operation is not None]
            heapq.heapify(self._heap)


class Counters:
    """The counters by key. A counter without a value and without waiters is removed."""

    __slots__ = ("by_key", "keys", "links")

    def __init__(self) -> None:
        self.by_key: dict[object, Counter] = {}
        self.links: i64 = 0  # thresholds that operations wait for
        self.keys: i64 = 0  # keys with such a threshold

    def get(self, key: object) -> Counter | None:
        """Return the counter of *key*, if it has a value or a waiter."""
        try:
            return self.by_key.get(key)
        except TypeError:
            refuse_unhashable("key", key)
            raise

    def reached(self, key: object, threshold: int | float) -> bool:
        """Return whether the counter of *key* is at least at *threshold*."""
        counter = self.by_key.get(key)
        return counter is not None and counter.reached(threshold)

    def raise_to(self, key: object, value: int | float) -> Counter | None:
        """Set the counter of *key* and return it; return None if it is above *value* already."""
        counter = self._made(key)
        if counter.value is not None and counter.value > value:
            return None
        counter.value = value
        return counter

    def link(
        self, operation: ThresholdOperation, missing: list[tuple[object, int | float]]
    ) -> None:
        """Add *operation* as a waiter for each of the thresholds.

        Raises:
            TypeError: A key is not hashable; the operation then waits for no counter.
        """
        try:
            for key, least in missing:
                counter = self._made(key)
                if counter.reached(least):  # by code that the hash of a key ran
                    operation.wanted -= 1
                    continue
                if counter.live == 0:
                    self.keys += 1
                operation.waiting.append(counter.add(operation, least))
                self.links += 1
        except BaseException:
            self.unlink(operation)
            raise

    def pop_reached(
        self, counter: Counter, value: int | float, arrivals: int
    ) -> ThresholdOperation | None:
        """Remove and return the next operation whose threshold *value* reaches, lowest first."""
        operation = counter.pop_reached(value, arrivals)
        if operation is not None:
            self.links -= 1
            if counter.live == 0:
                self.keys -= 1
        return operation

    def unlink(self, operation: ThresholdOperation) -> None:
        """Remove *operation* from all its counters."""
        left = operation.waiting
        operation.waiting = []
        for waiting in left:
            if waiting.operation is not None:
                counter = waiting.counter
                waiting.leave()
                counter.compact()
                self.links -= 1
                if counter.live == 0:
                    self.keys -= 1
        # Last, because a look-up runs code of the key, which may be interrupted.
        for waiting in left:
            counter = waiting.counter
            if counter.is_unused():
                self._drop(counter)
        if not self.by_key:
            self.by_key.clear()  # releases the memory of former keys

    def _drop(self, counter: Counter) -> None:
        """Remove *counter*, unless the code of its key, which each look-up runs, uses it again."""
        try:
            # After `forget`, the key may have another counter.
            if self.by_key.get(counter.key) is counter and counter.is_unused():
                del self.by_key[counter.key]
                if not counter.is_unused():
                    self.by_key.setdefault(counter.key, counter)
        except Exception:  # the key can no longer be compared; as in `WatchLists.remove`
            return

    def forget(self, key: object) -> bool:
        """Drop the value of *key*; return whether it had one."""
        counter = self.get(key)
        if counter is None or counter.value is None:
            return False
        counter.value = None
        if counter.live == 0:
            self._drop(counter)
        return True

    def operations(self) -> list[ThresholdOperation]:
        """Return each waiting operation once. O(thresholds)."""
        found: list[ThresholdOperation] = []
        for counter in list(self.by_key.values()):  # a finalizer may remove a key meanwhile
            for operation in counter.operations():
                for waiting in operation.waiting:
                    if waiting.operation is not None:  # the first one that is left
                        if waiting.counter is counter:
                            found.append(operation)
                        break
        return found

    def sizes(self) -> list[tuple[int, object]]:
        """Return the number of waiters and the key of each counter with waiters; any thread."""
        return [(int(c.live), c.key) for c in list(self.by_key.values()) if c.live]

    def _made(self, key: object) -> Counter:
        counter = self.get(key)
        if counter is None:
            # Not an assignment: the hash of the key may run code that adds the same counter.
            counter = self.by_key.setdefault(key, Counter(key))
        return counter
