"""Which keys are hot and which operations wait longest, at a fixed cost a look. Rank 4.

A look at everything that waits would cost what the dashboard may not. So each look examines a few
keys, the next one the following keys; what was found before is kept for as long as it holds. With
at most `KEYS` keys, a look is exact but for keys with more waiters than `OPERATIONS`.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Final

from aiowheel.dashboard._waiting import Waiting, told
from aiowheel.purgatory import Purgatory
from aiowheel.purgatory._operation import Operation

KEYS: Final = 150  #: keys examined in one look
OPERATIONS: Final = 150  #: operations examined in one look, at least one of a key
SHOWN: Final = 12  #: keys and operations shown
_KEPT: Final = 2 * SHOWN  # operations kept: those shown, and who takes their place


class Rotation:
    """Looks at one purgatory, a few keys at a time."""

    def __init__(self, purgatory: Purgatory) -> None:
        self._purgatory = purgatory
        self._at = 0  # how many keys of this turn have been examined
        self._hot: dict[Hashable, int] = {}
        self._kept: dict[int, Waiting] = {}  # by the operation's identity
        self.ended: list[Waiting] = []  #: kept ones found to be over by the last look

    def look(self) -> None:
        """Examine the next keys."""
        self._leave_out_the_ended()
        keys, total = self._purgatory.key_range(self._at, self._at + KEYS)
        if self._at and not keys:
            self._at = 0
            keys, total = self._purgatory.key_range(0, KEYS)
        each = max(1, OPERATIONS // max(1, min(KEYS, total)))
        for key in keys:
            self._examine(key, each)
        self._at += KEYS
        self._keep_the_first()

    def forget(self) -> None:
        """Begin anew: what is kept would keep operations that are over, and end them late."""
        self._at = 0
        self._hot.clear()
        self._kept.clear()
        self.ended = []

    def hottest(self) -> list[tuple[Hashable, int]]:
        """The keys with most waiters of all examined, and how many those are."""
        return list(self._hot.items())

    def oldest(self) -> list[Waiting]:
        """The operations that wait longest of all examined, oldest first."""
        return list(self._kept.values())[:SHOWN]

    def _leave_out_the_ended(self) -> None:
        self.ended = [each for each in self._kept.values() if each.operation.is_completed()]
        for each in self.ended:
            del self._kept[id(each.operation)]
        self._hot = {key: self._purgatory.waiters(key) for key in self._hot}

    def _examine(self, key: Hashable, most: int) -> None:
        purgatory = self._purgatory
        self._hot[key] = purgatory.waiters(key)
        for operation, threshold in purgatory.first_waiters(key, most):
            if threshold is None:
                self._keep(operation, Waiting(operation, operation.keys[0], None, None))
            else:
                value = purgatory.value(key)
                self._keep(operation, Waiting(operation, key, threshold, value))

    def _keep(self, operation: Operation, waiting: Waiting) -> None:
        if not operation.is_completed():
            self._kept[id(operation)] = waiting

    def _keep_the_first(self) -> None:
        hot = heapq.nlargest(SHOWN, self._hot.items(), key=lambda item: item[1])
        self._hot = {key: count for key, count in hot if count}
        first = heapq.nsmallest(_KEPT, self._kept.values(), key=lambda each: each.operation.created)
        self._kept = {id(each.operation): each for each in first}


def described(rotation: Rotation, now: float) -> Iterator[tuple[str, object]]:
    """What a look found, as JSON may hold it."""
    yield "keys", [[told(key), count] for key, count in rotation.hottest()]
    yield "oldest", [each.as_json(now) for each in rotation.oldest()]
    yield "ended", [each.as_ended() for each in rotation.ended[:SHOWN]]
