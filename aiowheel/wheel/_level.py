"""One ring of buckets. Rank 0: no clock, no loop.

Source: one TimingWheel of Kafka's chain; the occupancy map is tokio's idea. The occupancy map has
one byte per slot, so that one ``memchr`` finds the next entry.
"""

from __future__ import annotations

from mypy_extensions import i64

from aiowheel.wheel._bucket import Bucket, TimerEntry


class Level:
    """A ring of ``wheel_size`` buckets of ``width`` ticks each, which covers ``[base, limit)``.

    A level covers one block of ticks aligned to its own range, never a sliding window. An entry is
    filed at the finest level whose block holds its tick. All entries of one tick therefore pass
    through the same buckets in the order of arming, and keep that order at no cost.
    """

    __slots__ = (
        "base",
        "buckets",
        "coarser",
        "flags",
        "limit",
        "occupied",
        "shift",
        "span",
        "width",
    )

    def __init__(self, width: i64, wheel_size: i64, current: i64, horizon: i64) -> None:
        self.width = width
        self.shift: i64 = int(width).bit_length() - 1 if width & (width - 1) == 0 else -1
        self.coarser: Level | None = None  #: the next overflow level
        # A span beyond the whole range of ticks would overflow 64 bits, so the last level ends at
        # the horizon.
        self.span: i64 = width * wheel_size if width <= horizon // wheel_size else horizon
        self.base: i64 = 0
        self.limit: i64 = self.span
        self.buckets = [Bucket() for _ in range(wheel_size)]  #: [slot]
        self.occupied = bytearray(wheel_size)  #: [slot] 1 where the bucket may hold an entry
        self.flags: i64 = 0  # the number of slots that are set in the map
        self.move_to(current)

    def move_to(self, current: i64) -> None:
        """Cover the block that holds the tick *current*. The buckets must be empty."""
        self.base = current - current % self.span
        self.limit = self.base + self.span

    def slot_of(self, tick: i64) -> i64:
        """Return the slot that covers *tick*, which must lie in the block."""
        if self.shift >= 0:
            return (tick - self.base) >> self.shift  # a division would double the cost of `append`
        return (tick - self.base) // self.width

    def append(self, entry: TimerEntry, tick: i64) -> None:
        """Add *entry* to the bucket that covers *tick*, which must lie in the block. O(1)."""
        slot = self.slot_of(tick)
        bucket = self.buckets[slot]
        if not bucket.flagged:
            bucket.flagged = True
            set_flag(self.occupied, slot, 1)
            self.flags += 1
        bucket.append(entry)

    def next_occupied(self, current: i64) -> i64:
        """Return the first slot after that of *current* that holds an entry, or -1.

        Cost: one memchr. If all entries of a slot were cancelled, the map is cleared there once.
        """
        slot = self.slot_of(current)
        while True:
            if self.flags == 0:
                return -1
            slot = first_flag(self.occupied, slot + 1)
            if slot < 0 or not self.buckets[slot].is_empty():
                return slot
            self._clear_flag(slot)

    def take(self, slot: i64) -> Bucket:
        """Clear *slot* in the occupancy map and return its bucket, which the caller empties."""
        self._clear_flag(slot)
        return self.buckets[slot]

    def _clear_flag(self, slot: i64) -> None:
        set_flag(self.occupied, slot, 0)
        self.flags -= 1
        self.buckets[slot].flagged = False


# The build hook (hatch_c.py) replaces both functions by C code, because a method call on a
# bytearray costs more than the rest.


def first_flag(occupied: bytearray, start: i64) -> i64:
    """Return the first slot from *start* on that the map has set, or -1."""
    return occupied.find(1, start)


def set_flag(occupied: bytearray, slot: i64, flag: i64) -> None:
    """Set *slot* of the map to *flag*, 0 or 1."""
    occupied[slot] = flag
