"""What the wheel's tests share."""

from collections.abc import Callable

import pytest

from aiowheel.wheel import TimerEntry, TimingWheel

Expire = Callable[[TimingWheel, int, int], list[tuple[int, TimerEntry]]]


@pytest.fixture
def expire() -> Expire:
    """Turn a wheel as a driver does, to every next expiration until a time.

    None may be early, and whatever was armed in time is late by less than a tick; the invariants
    hold at every stop.
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
