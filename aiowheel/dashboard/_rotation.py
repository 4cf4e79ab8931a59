"""The hottest keys, and the keys whose waiters are oldest, at a fixed cost a look. Rank 4.

A look at everything that waits would cost more with everything that waits. So each look examines a
few keys, the next one the following keys; what was found before is kept for as long as it holds.
With at most `KEYS` keys a look is exact, but for keys with more waiters than `OPERATIONS`.
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

KEYS: Final = 150  #: keys examined in one look
OPERATIONS: Final = 150  #: operations examined in one look, at least one of a key
SHOWN: Final = 12  #: keys in each of the two lists, and operations that have just ended
_KEPT: Final = 2 * SHOWN  # keys whose oldest operations are kept: those shown, and the next ones
_EACH: Final = 4  # operations kept of a key: its oldest one, and the next ones


class Rotation:
    """Looks at one purgatory, a few keys at a time."""

    def __init__(self, purgatory: Purgatory) -> None:
        self._purgatory = purgatory
        self._at = 0  # how many keys of this turn have been examined
        self._hot: dict[Hashable, int] = {}
        self._kept: dict[Hashable, list[Waiting]] = {}  # by key, oldest first, in both directions
        self._known: dict[int, Hashable] = {}  # the key of every operation in `_kept`, by identity
        self._youngest: int = FOREVER  # creation of the last key kept, once all places are taken
        self._ended: deque[Json] = deque(maxlen=SHOWN)

    def look(self) -> None:
        """Examine the next keys."""
        self._drop_ended()
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
        """Begin again: what is kept would keep ended operations alive."""
        self._at = 0
        self._hot.clear()
        self._kept.clear()
        self._known.clear()
        self._youngest = FOREVER
        self._ended.clear()

    def hottest(self) -> list[tuple[Hashable, int]]:
        """Return the keys with most waiters of all examined, and how many waiters they have."""
        return list(self._hot.items())

    def oldest(self) -> list[Waiting]:
        """Return the oldest operation of each key, oldest first, of all examined."""
        return [each[0] for each in self._kept.values()][:SHOWN]

    def ended(self) -> list[Json]:
        """Return the last operations that ended after a look had found them, oldest first."""
        return list(self._ended)

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
                    self._youngest = FOREVER  # there is room for one
        self._hot = {key: self._purgatory.waiters(key) for key in self._hot}

    def _examine(self, key: Hashable, most: int) -> None:
        purgatory = self._purgatory
        self._hot[key] = purgatory.waiters(key)
        for operation, threshold in purgatory.first_waiters(key, most):
            name = operation.keys[0] if threshold is None else key
            if operation.created_ns > self._youngest and name not in self._kept:
                continue
            value = None if threshold is None else purgatory.value(key)
            self._keep(Waiting(operation, name, threshold, value))

    def _keep(self, waiting: Waiting) -> None:
        operation: Operation = waiting.operation
        known = self._known.get(id(operation))
        if operation.is_completed() or (known is not None and known != waiting.key):
            return  # an operation with several keys is shown with the key it was found by
        if known is None:
            self._known[id(operation)] = waiting.key
            self._kept.setdefault(waiting.key, []).append(waiting)
        else:  # its counter may stand elsewhere by now
            found = self._kept[waiting.key]
            place = [id(each.operation) for each in found].index(id(operation))
            found[place] = waiting

    def _keep_the_first(self) -> None:
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


def described(purgatory: Purgatory, rotation: Rotation, now: float) -> Json:
    """Return what the looks found, as JSON may hold it."""
    return {
        "keys": [[text_of(key), count] for key, count in rotation.hottest()],
        "oldest": [
            {**each.as_json(now), "waiters": purgatory.waiters(each.key)}
            for each in rotation.oldest()
        ],
        "ended": rotation.ended(),
    }


def _creation(waiting: Waiting) -> int:
    return int(waiting.operation.created_ns)
