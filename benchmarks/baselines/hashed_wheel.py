"""A hashed wheel: one ring, and each entry counts the remaining rounds.

Netty's HashedWheelTimer, scheme 6 of Varghese & Lauck. Every tick is processed even if no timer is
due, and every entry of the tick's slot is visited.
"""

from collections.abc import Callable
from time import monotonic

from benchmarks.baselines._parking import Parked


class HashedWheel:
    """`Timers` in one ring of *slots* buckets, Netty's default being 512."""

    def __init__(self, tick: float, slots: int = 512) -> None:
        self._tick = tick
        self._began = monotonic()
        self._ticks = 0  # ticks processed so far
        self._buckets: list[dict[Parked, int]] = [{} for _ in range(slots)]  # remaining rounds

    def add(self, request: Parked, deadline: float) -> None:
        """Add the request to its slot, with the number of rounds until it is due."""
        # Rounded up, so that no request expires early.
        tick = max(int((deadline - self._began) / self._tick) + 1, self._ticks)
        rounds, slot = divmod(tick - self._ticks, len(self._buckets))
        bucket = self._buckets[(self._ticks + slot) % len(self._buckets)]
        bucket[request] = rounds
        request.timer = bucket

    def remove(self, request: Parked) -> None:
        """Remove the request from its bucket."""
        bucket = request.timer
        assert isinstance(bucket, dict)
        request.timer = None
        del bucket[request]

    def turn(self, now: float, expire: Callable[[Parked], None]) -> None:
        """Process every tick up to *now*."""
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
