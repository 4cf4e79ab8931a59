"""How full the buckets of a wheel are, for people who watch it turn. Rank 0: no clock, no loop."""

from __future__ import annotations

from dataclasses import dataclass

from mypy_extensions import i64

from aiowheel.wheel._bucket import Bucket
from aiowheel.wheel._entry import TimerEntry
from aiowheel.wheel._rings import Rings


@dataclass(frozen=True, slots=True)
class LevelOccupancy:
    """One ring.

    Attributes:
        base: Where its first bucket begins, in the wheel's unit.
        width: How much time a bucket covers, in the wheel's unit.
        counts: For every bucket how many entries hang in it, up to the limit asked for.
    """

    base: int
    width: int
    counts: bytes


def occupancy(rings: Rings, most: int) -> list[LevelOccupancy]:
    """Every ring, finest first; no bucket is counted beyond *most*, at most 255.

    Cost: O(buckets + occupied buckets x most), whatever the number of entries.
    """
    limit: i64 = most
    return [
        LevelOccupancy(
            base=(level.base + rings._origin) * rings._tick,
            width=level.width * rings._tick,
            counts=bytes(
                [
                    _count(bucket, limit) if occupied else 0
                    for bucket, occupied in zip(level.buckets, level.occupied, strict=True)
                ]
            ),
        )
        for level in rings.levels()
    ]


def _count(bucket: Bucket, limit: i64) -> i64:
    count: i64 = 0
    node = bucket._next
    while count < limit and isinstance(node, TimerEntry):
        count += 1
        node = node._next
    return count
