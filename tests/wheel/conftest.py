"""Fixtures that the wheel's tests share."""

from collections.abc import Callable

import pytest

from aiowheel.wheel import TimerEntry, TimingWheel

Expire = Callable[[TimingWheel, int, int], list[tuple[int, TimerEntry]]]


@pytest.fixture
def expire() -> Expire:
    """Return a function that advances a wheel to each next expiration, as a driver does.

    It asserts that no entry is early, that an entry armed in time is less than a tick late, and
    that the invariants hold after every advance.
    """

    def turn(wheel: TimingWheel, tick: int, until: int) -> list[tuple[int, TimerEntry]]:
        expired: list[tuple[int, TimerEntry]] = []
        before = wheel.now
        while (upcoming := wheel.next_expiration()) is not None and upcoming <= until:
            assert upcoming >= wheel.now
            for entry in wheel.advance(upcoming):
                assert entry.deadline <= upcoming
                assert upcoming - max(entry.deadline, before) < tick
                expired.append((upcoming, entry))
            wheel.check_invariants()
        expired.extend((until, entry) for entry in wheel.advance(until))
        assert all(entry.deadline <= until for _, entry in expired)
        wheel.check_invariants()
        return expired

    return turn
