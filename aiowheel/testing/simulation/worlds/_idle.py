"""The world of the idle detector: touches before, at and after the timeout. Rank 4.

The oracle records the last touch of each key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from aiowheel._units import ns_to_seconds
from aiowheel.errors import InjectedError
from aiowheel.recipes import IdleDetector
from aiowheel.testing.simulation._faults import ALL_FAULTS
from aiowheel.testing.simulation._world import World, step
from aiowheel.timer import Timer

_TIMEOUTS_NS = (1, 1_000_000, 30_000_000, 1_500_000_000, 600 * 1_000_000_000)
_KEYS = tuple("abcdefgh")


class IdleWorld(World):
    """An `IdleDetector` on its own timer."""

    faults = ALL_FAULTS
    starts = (0.0, 17_000_000.123)

    async def setup(self) -> None:
        """Open the timer and the detector."""
        self.tick_ns = self.random.choice((1_000_000, 1_000_000, 50_000_000))
        self.timeout_ns = self.random.choice(_TIMEOUTS_NS)
        self.timer = await Timer(tick=ns_to_seconds(self.tick_ns)).__aenter__()
        self.detector: IdleDetector[str] = IdleDetector(
            ns_to_seconds(self.timeout_ns), self.on_idle, timer=self.timer
        )
        self.last: dict[str, int] = {}
        self.touched_again: str = ""  # a key that `on_idle` touches
        self.is_open = True

    def on_idle(self, key: str) -> None:
        """Assert that the last touch of an idle key is more than the timeout ago."""
        last = self.last.pop(key)
        silent = self.now_ns - last
        assert silent > self.timeout_ns, f"{key} fell idle {self.timeout_ns - silent} ns early"
        assert key not in self.detector
        self.note(f"idle {key}")
        if key == self.touched_again:
            self.touched_again = ""
            self.touch_key(key)
        elif self.random.random() < 0.05:
            raise InjectedError("on_idle failed")

    def touch_key(self, key: str) -> None:
        """Touch a key; if its timeout has passed, `on_idle` is called first."""
        last = self.last.get(key)
        is_late = last is not None and self.now_ns - last > self.timeout_ns
        is_ordinary = key != self.touched_again
        try:
            self.detector.touch(key)
        finally:
            if is_late and is_ordinary:
                assert key not in self.last, "a late touch was accepted before on_idle was called"
            self.last[key] = self.now_ns
        expires = self.detector.expires(key)
        assert expires is not None
        off = expires - ns_to_seconds(self.now_ns + self.timeout_ns)
        assert abs(off) < 1e-6, f"expires() is wrong by {off} s"

    @step(weight=5)
    def touch(self) -> None:
        """Touch some keys."""
        for key in self.random.sample(_KEYS, self.random.randint(1, 4)):
            self.touch_key(key)

    @step(weight=3)
    async def touch_around_the_timeout(self) -> None:
        """Touch a key a nanosecond before, at, or after its timeout."""
        if not self.last:
            return
        key = self.random.choice(list(self.last))
        offset = self.random.choice((-1, 0, 1, self.tick_ns // 2, self.tick_ns))
        wanted = self.last[key] + self.timeout_ns + offset
        if wanted >= self.now_ns:
            self.stall(ns_to_seconds(wanted - self.now_ns))
            self.touch_key(key)

    @step
    def touch_in_on_idle(self) -> None:
        """Choose a key that `on_idle` touches again."""
        self.touched_again = self.random.choice(_KEYS)

    @step(weight=2)
    def discard(self) -> None:
        """Stop watching a key."""
        key = self.random.choice(_KEYS)
        assert self.detector.discard(key) == (self.last.pop(key, None) is not None)

    def check(self) -> None:
        """Assert that the detector and the oracle watch the same keys."""
        assert set(self.detector) == set(self.last)
        assert len(self.detector) == len(self.last)

    def idle(self) -> None:
        """Assert that every idle key was reported."""
        if not hasattr(self, "last") or self.now_ns < self.loop.peak_ns or not self.is_open:
            return
        assert len(self.timer) == len(self.last), "the timer holds other deadlines than the keys'"
        for key, last in self.last.items():
            due_ns = -(-(last + self.timeout_ns + 1) // self.tick_ns) * self.tick_ns
            assert self.now_ns < due_ns, f"{key} fell idle {self.now_ns - due_ns} ns ago"

    def state(self) -> Hashable:
        """Return the watched keys, the quarters of the timeout left for the next, the timeout."""
        oldest = min(self.last.values(), default=self.now_ns)
        left = max(0, oldest + self.timeout_ns - self.now_ns) * 4 // self.timeout_ns
        return (tuple(sorted(self.last)), left, self.timeout_ns)

    async def finish(self) -> None:
        """Wait for some keys, then close; no key falls idle after that."""
        await asyncio.sleep(self.random.choice((0.0, 2.0, 700.0)))
        if self.random.random() < 0.5:
            await self.detector.aclose()
        self.is_open = False
        await self.timer.aclose()
        self.last.clear()
        await asyncio.sleep(2_000)
