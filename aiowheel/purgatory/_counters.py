"""Every key's counter, and the operations that wait for several of them. Rank 2."""

from __future__ import annotations

from mypy_extensions import i64

from aiowheel.purgatory._thresholds import Counter, ThresholdOperation


class Counters:
    """Counters by key; one that has no value and no waiter is forgotten."""

    __slots__ = ("_by_key", "keys", "links")

    def __init__(self) -> None:
        self._by_key: dict[object, Counter] = {}
        self.links: i64 = 0  # thresholds that are waited for
        self.keys: i64 = 0  # with such a threshold

    def get(self, key: object) -> Counter | None:
        """The counter of *key*, if it has a value or a waiter."""
        return self._by_key.get(key)

    def reached(self, key: object, threshold: int | float) -> bool:
        """Whether the counter of *key* stands at *threshold* or beyond."""
        counter = self._by_key.get(key)
        return counter is not None and counter.reached(threshold)

    def raise_to(self, key: object, value: int | float) -> Counter | None:
        """Set the counter of *key*, made when missing; None when it stood there already."""
        counter = self._made(key)
        if counter.reached(value):
            return None
        counter.value = value
        return counter

    def link(
        self, operation: ThresholdOperation, missing: list[tuple[object, int | float]]
    ) -> None:
        """Have *operation* wait for each of the thresholds."""
        for key, least in missing:
            counter = self._made(key)
            if counter.live == 0:
                self.keys += 1
            operation.waiting.append(counter.add(operation, least))
        self.links += len(missing)

    def pop_reached(self, counter: Counter) -> ThresholdOperation | None:
        """Take the next operation whose threshold *counter* has reached, lowest first."""
        operation = counter.pop_reached()
        if operation is not None:
            self.links -= 1
            if counter.live == 0:
                self.keys -= 1
        return operation

    def unlink(self, operation: ThresholdOperation) -> None:
        """Have *operation* wait for none of its thresholds any more."""
        for waiting in operation.waiting:
            counter = waiting.counter
            if waiting.operation is not None:
                waiting.leave()
                counter.compact()
                self.links -= 1
                if counter.live == 0:
                    self.keys -= 1
            if counter.live == 0 and counter.value is None:
                self._drop(counter)
        operation.waiting = []
        if not self._by_key:
            self._by_key.clear()  # else it keeps room for all the keys it ever had

    def _drop(self, counter: Counter) -> None:
        try:
            # Forgotten since somebody waited for it, the key may have another counter by now.
            if self._by_key.get(counter.key) is counter:
                del self._by_key[counter.key]
        except Exception:  # a key that cannot be compared any more; as in `WatchLists.remove`
            return

    def forget(self, key: object) -> bool:
        """Forget the value of *key*; whether it had one."""
        counter = self._by_key.get(key)
        if counter is None or counter.value is None:
            return False
        counter.value = None
        if counter.live == 0:
            del self._by_key[key]
        return True

    def operations(self) -> list[ThresholdOperation]:
        """Each waiting operation once. O(thresholds)."""
        found: list[ThresholdOperation] = []
        for counter in self._by_key.values():
            for operation in counter.operations():
                waited_for = [waiting for waiting in operation.waiting if waiting.operation]
                if waited_for[0].counter is counter:
                    found.append(operation)
        return found

    def sizes(self) -> list[tuple[int, object]]:
        """How many wait for each key, and the key, without keys nobody waits for; any thread."""
        return [(int(c.live), c.key) for c in list(self._by_key.values()) if c.live]

    def _made(self, key: object) -> Counter:
        counter = self._by_key.get(key)
        if counter is None:
            counter = self._by_key[key] = Counter(key)
        return counter
