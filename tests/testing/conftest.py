"""The fixtures of the tests of virtual time."""

from collections.abc import Callable, Iterator

import pytest

from aiowheel.testing import VirtualClockEventLoop


@pytest.fixture
def virtual_loop() -> Iterator[Callable[..., VirtualClockEventLoop]]:
    """Return a function that creates virtual loops, and close the loops at the end."""
    loops: list[VirtualClockEventLoop] = []

    def make(patience: float = 0.1, *, autojump: bool = True) -> VirtualClockEventLoop:
        loop = VirtualClockEventLoop(patience=patience, autojump=autojump)
        loops.append(loop)
        return loop

    yield make
    for loop in loops:
        loop.close()
