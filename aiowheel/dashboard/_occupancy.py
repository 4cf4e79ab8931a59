"""The occupancy of a wheel's buckets, in powers of two, at a bounded cost per snapshot. Rank 4.

A snapshot counts each bucket up to `SHALLOW` entries. Fuller buckets get a deep count, of up to
`DEEP` entries. All deep counts of one snapshot together visit at most `DEEP` entries; the next
snapshot continues with the next bucket. A bucket keeps its last deep count until the next one.
"""

from __future__ import annotations

from typing import Final

from aiowheel.wheel import LevelOccupancy, TimingWheel

SHALLOW: Final = 16  #: maximum entries counted per bucket in each snapshot
#: Maximum entries visited by all deep counts of one snapshot; also the largest deep count.
DEEP: Final = 4_096
#: One character per power of two: 0 for no entry, 1 for one, 2 for 2 to 3, 3 for 4 to 7, ...
_POWERS: Final = "0123456789abcd"
_SHALLOW_POWERS: Final = bytes.maketrans(
    bytes(range(SHALLOW + 1)),
    "".join(_POWERS[count.bit_length()] for count in range(SHALLOW + 1)).encode(),
)


class Occupancy:
    """Counts the entries of one wheel's buckets, over successive snapshots."""

    def __init__(self) -> None:
        self._counted: dict[tuple[int, int], int] = {}  # last deep count by (level, slot)
        self._at = 0  # index of the next deep count, in the list of fuller buckets

    def snapshot(self, wheel: TimingWheel) -> list[tuple[LevelOccupancy, str]]:
        """Return each level with a text of one character per bucket, see `_POWERS`."""
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
                return  # the count is incomplete: the next snapshot begins with this bucket
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
