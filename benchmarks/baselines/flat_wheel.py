"""A wheel of levels that never cascades: distant timers have a coarser resolution.

The design of Linux timers since 4.8. An entry stays in its bucket and fires up to an eighth of its
delay late, which suits timeouts, because most of them are cancelled.
"""

from collections.abc import Callable
from time import monotonic

from benchmarks.baselines._parking import Parked

SLOTS = 64  # per level
STEP = 3  # each level is 2**3 times coarser than the previous one
LEVELS = 9


class FlatWheel:
    """`Timers` in levels of 64 buckets."""

    def __init__(self, tick: float) -> None:
        self._tick = tick
        self._began = monotonic()
        self._ticks = 0  # ticks processed so far
        self._buckets: list[list[dict[Parked, None]]] = [
            [{} for _ in range(SLOTS)] for _ in range(LEVELS)
        ]  # [level][slot]

    def add(self, request: Parked, deadline: float) -> None:
        """Add the request to the finest level with enough range, rounded up to its resolution."""
        tick = max(int((deadline - self._began) / self._tick) + 1, self._ticks)
        level, ahead = 0, tick - self._ticks
        while ahead >= (SLOTS - 1) << (STEP * level) and level < LEVELS - 1:
            level += 1
        shift = STEP * level
        slot = ((tick + (1 << shift) - 1) >> shift) % SLOTS
        bucket = self._buckets[level][slot]
        bucket[request] = None
        request.timer = bucket

    def remove(self, request: Parked) -> None:
        """Remove the request from its bucket."""
        bucket = request.timer
        assert isinstance(bucket, dict)
        request.timer = None
        del bucket[request]

    def turn(self, now: float, expire: Callable[[Parked], None]) -> None:
        """Process every tick up to *now*, and a level when its resolution divides the tick."""
        reached = int((now - self._began) / self._tick)
        while self._ticks <= reached:
            tick = self._ticks
            self._ticks += 1
            for level, buckets in enumerate(self._buckets):
                shift = STEP * level
                if tick & ((1 << shift) - 1):
                    break
                slot = (tick >> shift) % SLOTS
                due, buckets[slot] = buckets[slot], {}
                for request in due:
                    request.timer = None
                    expire(request)
