"""The keys with the most and with the oldest waiters, at a bounded cost per snapshot. Rank 4.

The cost of a full scan would grow with the number of keys. A round therefore begins with a list of
all keys; each snapshot examines a few keys of that list, and the next one continues with the
following keys. Earlier results are kept while they are valid. With up to `KEYS` keys a snapshot is
exact, except for keys with more than `OPERATIONS` waiters.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable
from typing import Final

from aiowheel._units import FOREVER
from aiowheel.dashboard._waiting import Json, Waiting, text_of
from aiowheel.purgatory import Purgatory
from aiowheel.purgatory._operation import Operation

KEYS: Final = 150  #: maximum keys examined per snapshot
OPERATIONS: Final = 150  #: operations examined per snapshot, at least one per key
_LOOKED_UP: Final = 1_000  # maximum keys looked up per snapshot, because some have no waiters
SHOWN: Final = 12  #: length of each list: hottest keys, oldest keys, ended operations
_KEPT: Final = 2 * SHOWN  # keys whose oldest operations are kept; the surplus replaces ended ones
_EACH: Final = 4  # oldest operations kept per key; the surplus replaces ended ones


class Rotation:
    """Examines the keys of one purgatory, a few keys per snapshot."""

    def __init__(self, purgatory: Purgatory) -> None:
        self._purgatory = purgatory
        self._round: list[Hashable] = []  # the keys left to examine in this round, last one first
        self._each = 1  # operations examined per key in this round
        self._hot: dict[Hashable, int] = {}
        self._kept: dict[Hashable, list[Waiting]] = {}  # both keys and operations oldest first
        self._known: dict[int, Hashable] = {}  # key of each operation in `_kept`, by its id()
        # Creation time of the youngest kept key if `_KEPT` keys are kept, otherwise FOREVER.
        self._youngest: int = FOREVER
        self._ended: deque[Json] = deque(maxlen=SHOWN)

    def snapshot(self) -> None:
        """Examine the next keys."""
        self._drop_ended()
        _, total = self._purgatory.key_range(0, 0)
        if not self._round or len(self._round) > 2 * total:
            self._round = all_keys(self._purgatory)
            self._round.reverse()
            self._each = max(1, OPERATIONS // max(1, min(KEYS, len(self._round))))
        examined = looked_up = 0
        while self._round and examined < KEYS and looked_up < _LOOKED_UP:
            key = self._round.pop()
            looked_up += 1
            if self._purgatory.waiters(key):
                self._examine(key)
                examined += 1
        if not examined:  # the keys of the list have ended, and others may have come
            self._round.clear()
        self._keep_top()

    def forget(self) -> None:
        """Drop all results, which would keep ended operations alive, and start again."""
        self._round.clear()
        self._hot.clear()
        self._kept.clear()
        self._known.clear()
        self._youngest = FOREVER
        self._ended.clear()

    def shown_keys(self) -> list[Hashable]:
        """Return the keys of `hottest` and `oldest`."""
        return [*self._hot, *(each.key for each in self.oldest())]

    def hottest(self) -> list[tuple[Hashable, int]]:
        """Return the examined keys with the most waiters, and their numbers of waiters."""
        return list(self._hot.items())

    def oldest(self) -> list[Waiting]:
        """Return the oldest operation of each of the oldest keys, oldest first."""
        return [each[0] for each in self._kept.values()][:SHOWN]

    def ended(self) -> list[Json]:
        """Return the last kept operations that have ended, oldest first."""
        return list(self._ended)

    def as_json(self, now: float) -> Json:
        """Return `hottest`, `oldest` and `ended` as JSON, with times relative to *now*."""
        return {
            "keys": [[text_of(key), count] for key, count in self.hottest()],
            "oldest": [
                {**each.as_json(now), "waiters": self._purgatory.waiters(each.key)}
                for each in self.oldest()
            ],
            "ended": self.ended(),
        }

    def _drop_ended(self) -> None:
        for key, found in list(self._kept.items()):
            pending = [each for each in found if not each.operation.is_completed()]
            if len(pending) < len(found):
                for each in found:
                    if each.operation.is_completed():
                        del self._known[id(each.operation)]
                        self._ended.append(each.as_ended())
                self._kept[key] = pending
                if not pending:
                    del self._kept[key]
                    self._youngest = FOREVER  # there is room for another key
        self._hot = {key: self._purgatory.waiters(key) for key in self._hot}

    def _examine(self, key: Hashable) -> None:
        purgatory = self._purgatory
        self._hot[key] = purgatory.waiters(key)
        for operation, threshold in purgatory.first_waiters(key, self._each):
            name = operation.keys[0] if threshold is None else key
            if operation.created_ns > self._youngest and name not in self._kept:
                continue
            value = None if threshold is None else purgatory.value(key)
            self._add(Waiting(operation, name, threshold, value))

    def _add(self, waiting: Waiting) -> None:
        operation: Operation = waiting.operation
        known = self._known.get(id(operation))
        if operation.is_completed() or (known is not None and known != waiting.key):
            return  # an operation with several keys is shown under the first key that found it
        if known is None:
            self._known[id(operation)] = waiting.key
            self._kept.setdefault(waiting.key, []).append(waiting)
        else:  # the value of its counter may have changed
            found = self._kept[waiting.key]
            place = [id(each.operation) for each in found].index(id(operation))
            found[place] = waiting

    def _keep_top(self) -> None:
        hot = heapq.nlargest(SHOWN, self._hot.items(), key=lambda item: item[1])
        self._hot = {key: count for key, count in hot if count}
        for found in self._kept.values():
            if len(found) > 1:
                found.sort(key=_creation)
                del found[_EACH:]
        kept = heapq.nsmallest(_KEPT, self._kept.items(), key=lambda item: _creation(item[1][0]))
        self._kept = dict(kept)
        self._youngest = _creation(kept[-1][1][0]) if len(kept) == _KEPT else FOREVER
        self._known = {
            id(each.operation): key for key, found in self._kept.items() for each in found
        }


def all_keys(purgatory: Purgatory) -> list[Hashable]:
    """Return all keys, in the order of `Purgatory.key_range`. O(keys)."""
    _, total = purgatory.key_range(0, 0)
    keys, _ = purgatory.key_range(0, total)
    return keys


def _creation(waiting: Waiting) -> int:
    return int(waiting.operation.created_ns)
