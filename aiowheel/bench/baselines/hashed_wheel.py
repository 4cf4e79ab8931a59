"""A hashed wheel with rounds: one ring, and each entry counts how often it goes by. Rank 5.

Netty's HashedWheelTimer, scheme 6 of Varghese & Lauck. Every tick is stepped through, whether
anything is due or not, and every entry of the slot is looked at.
"""

from collections.abc import Callable
from time import monotonic

from aiowheel.bench.baselines._parking import Parked


class HashedWheel:
    """`Timers` in one ring of *slots* buckets, Netty's default being 512."""

    def __init__(self, tick: float, slots: int = 512) -> None:
        self._tick = tick
        self._began = monotonic()
        self._ticks = 0  # done so far
        self._buckets: list[dict[Parked, int]] = [{} for _ in range(slots)]  # rounds still to go

    def add(self, request: Parked, deadline: float) -> None:
        """File it under its slot, with the rounds until it is due."""
        # Rounded up: never early.
        tick = max(int((deadline - self._began) / self._tick) + 1, self._ticks)
        rounds, slot = divmod(tick - self._ticks, len(self._buckets))
        bucket = self._buckets[(self._ticks + slot) % len(self._buckets)]
        bucket[request] = rounds
        request.timer = bucket

    def remove(self, request: Parked) -> None:
        """Take it out of its bucket."""
        bucket = request.timer
        assert isinstance(bucket, dict)
        request.timer = None
        del bucket[request]

    def turn(self, now: float, expire: Callable[[Parked], None]) -> None:
        """Step through every tick up to *now*."""
        reached = int((now - self._began) / self._tick)
        while self._ticks <= reached:
            bucket = self._buckets[self._ticks % len(self._buckets)]
            self._ticks += 1
            for request, rounds in list(bucket.items()):
                if rounds:
                    bucket[request] = rounds - 1
                else:
                    del bucket[request]
                    request.timer = None
                    expire(request)
