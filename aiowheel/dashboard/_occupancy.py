"""How full the buckets of a wheel are, on a scale of powers of two, at a fixed cost a look. Rank 4.

A look counts every bucket up to `SHALLOW` entries. A bucket that has more is counted up to `DEEP`
entries, but all these counts of one look together visit at most `DEEP` entries: the next look goes
on with the next bucket, and a bucket keeps its last deep count until its turn comes again.
"""

from __future__ import annotations

from typing import Final

from aiowheel.wheel import LevelOccupancy, TimingWheel

SHALLOW: Final = 16  #: entries that every look counts in every bucket
DEEP: Final = 4_096  #: entries that one look counts besides; a bucket with more counts as this many
#: A character for each power of two: 0 for no entry, 1 for one, 2 for 2 to 3, 3 for 4 to 7, ...
_POWERS: Final = "0123456789abcd"
_SHALLOW_POWERS: Final = bytes.maketrans(
    bytes(range(SHALLOW + 1)),
    "".join(_POWERS[count.bit_length()] for count in range(SHALLOW + 1)).encode(),
)


class Occupancy:
    """The buckets of one wheel, look after look."""

    def __init__(self) -> None:
        self._counted: dict[tuple[int, int], int] = {}  # by level and slot: the last deep count
        self._at = 0  # where the deep counts go on, among the buckets that need one

    def look(self, wheel: TimingWheel) -> list[tuple[LevelOccupancy, str]]:
        """Return every level with one character for each of its buckets, see `_POWERS`."""
        levels = wheel.occupancy(SHALLOW)
        full = [
            (number, slot)
            for number, level in enumerate(levels)
            for slot in _places(level.counts, SHALLOW)
        ]
        self._count_deep(wheel, full)
        shown = [bytearray(level.counts.translate(_SHALLOW_POWERS)) for level in levels]
        for number, slot in full:
            count = self._counted.get((number, slot), SHALLOW)
            shown[number][slot] = ord(_POWERS[count.bit_length()])
        return [(level, text.decode()) for level, text in zip(levels, shown, strict=True)]

    def _count_deep(self, wheel: TimingWheel, full: list[tuple[int, int]]) -> None:
        self._counted = {each: self._counted[each] for each in full if each in self._counted}
        left = DEEP
        first = self._at
        for turn in range(len(full)):
            self._at = (first + turn) % len(full)
            place = full[self._at]
            count = wheel.count_bucket(*place, left)
            if count == left < DEEP:
                return  # it may have more: the next look begins with it
            self._counted[place] = count
            left -= count
            if left <= 0:
                self._at += 1
                return


def _places(counts: bytes, wanted: int) -> list[int]:
    places: list[int] = []
    at = counts.find(wanted)
    while at >= 0:
        places.append(at)
        at = counts.find(wanted, at + 1)
    return places
