"""Fixtures that the timer's tests share."""

import asyncio
import math
from collections.abc import Callable, Iterator
from selectors import SelectorKey, SelectSelector

import pytest

Step = Callable[[float], None]


class ClockSelector(SelectSelector):
    """A selector that advances the clock where the loop would sleep."""

    now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """Poll; advance the clock by *timeout* seconds if nothing is ready."""
        if timeout is None:
            return super().select(None)  # only another thread can wake the loop
        ready = super().select(0)
        if not ready and timeout > 0:
            # At high uptimes asyncio never runs a callback that is due at exactly this float.
            self.now += timeout
            self.now += 2 * math.ulp(self.now)
        return ready


class ClockLoop(asyncio.SelectorEventLoop):
    """A loop on a clock that a test can move in both directions."""

    def __init__(self) -> None:
        self.clock = ClockSelector()
        super().__init__(self.clock)

    def time(self) -> float:
        """Return the seconds on the stepped clock."""
        return self.clock.now


@pytest.fixture
def clock_loop() -> Iterator[asyncio.SelectorEventLoop]:
    """A loop whose time begins at 1000 s and passes only where the loop would sleep."""
    loop = ClockLoop()
    yield loop
    loop.close()


@pytest.fixture
def step(clock_loop: ClockLoop) -> Step:
    """Return a function that moves the clock of `clock_loop` forward or back."""

    def by(seconds: float) -> None:
        clock_loop.clock.now += seconds

    return by
