"""The wake-ups that the wheel requests: few, and no more than its levels need."""

from collections.abc import Callable

import pytest

from aiowheel.wheel import HeapWheel, TimerEntry, TimingWheel

Expire = Callable[[TimingWheel, int, int], list[tuple[int, TimerEntry]]]

HOUR_MS = 3_600_000


def stops(wheel: TimingWheel) -> list[int]:
    """Advance the wheel until it is empty; return the times that it requested."""
    asked: list[int] = []
    while (upcoming := wheel.next_expiration()) is not None:
        asked.append(upcoming)
        wheel.advance(upcoming)
    return asked


def test_an_empty_wheel_requests_no_wake_up() -> None:
    """A wheel whose entries were all cancelled requests none either."""
    wheel = TimingWheel()
    assert wheel.next_expiration() is None

    entries = [wheel.schedule(deadline) for deadline in (1, 300, 10**6)]
    for entry in entries:
        entry.cancel()

    assert wheel.next_expiration() is None


def test_one_entry_an_hour_away_wakes_once_a_level() -> None:
    """The wheel requests each cascade on the way and the deadline."""
    wheel = TimingWheel(tick=1, wheel_size=256)
    wheel.schedule(HOUR_MS)

    asked = stops(wheel)

    assert asked[-1] == HOUR_MS
    assert len(asked) <= wheel.statistics().levels


@pytest.mark.parametrize("idle", [HOUR_MS // 6, 24 * HOUR_MS, 2**36])
def test_a_short_entry_after_a_long_idle_time_cascades_at_most_once(idle: int) -> None:
    """The wheel is first advanced to now, so that 5 ms are not filed three levels up."""
    wheel = TimingWheel(tick=1, wheel_size=256)
    for now in range(idle, idle + 600, 7):
        entry = TimerEntry(now + 5, None)
        wheel.arm(entry, now)
        before = wheel.statistics().cascaded

        asked = stops(wheel)

        assert asked[-1] == now + 5
        assert len(asked) <= 2
        assert wheel.statistics().cascaded - before <= 1
        assert not entry.pending


def test_an_idle_wheel_that_was_not_advanced_counts_right(expire: Expire) -> None:
    """An entry that was filed too high cascades more often and is exact nevertheless."""
    wheel = TimingWheel(tick=1, wheel_size=256)
    wheel.schedule(600_005)

    assert [at for at, _ in expire(wheel, 1, 700_000)] == [600_005]


def test_arming_never_moves_time_past_a_pending_entry() -> None:
    """If an entry is due on the way, the wheel's time does not move."""
    wheel = TimingWheel()
    entry = wheel.schedule(1000)

    wheel.arm(TimerEntry(90_000, None), 999)
    assert wheel.now in {0, 999}
    wheel.arm(TimerEntry(90_000, None), 5000)

    assert wheel.now < 1000
    assert wheel.advance(5000) == [entry]


@pytest.mark.parametrize("deadline", [100, 300, 70_000])
def test_a_bucket_emptied_by_cancelling_is_not_woken_for(deadline: int) -> None:
    """On any level the next expiration is that of the remaining entry."""
    wheel = TimingWheel()
    cancelled = [wheel.schedule(deadline + number) for number in range(50)]
    left = wheel.schedule(10 * deadline)
    for entry in cancelled:
        entry.cancel()

    asked = stops(wheel)

    assert min(asked) > deadline + 50
    assert asked[-1] == left.deadline


def test_delays_of_many_sizes_wake_at_their_time_and_at_cascades_only() -> None:
    """There are no more stops than entries plus levels, and each entry is exact."""
    wheel = TimingWheel(wheel_size=64)
    delays = [1000, 2, 234, 299_008, 60, 10]
    for delay in delays:
        wheel.schedule(delay)

    asked = stops(wheel)

    assert set(delays) <= set(asked)
    assert len(asked) <= len(delays) * 2 + wheel.statistics().levels


def test_touching_for_an_hour_costs_one_refiling_a_bucket() -> None:
    """A thousand touches between two visits cause one cascade, as idle timeouts need."""
    wheel = TimingWheel(tick=1, wheel_size=256)
    entry = wheel.schedule(30_000)
    for now in range(0, HOUR_MS, 1000):
        while (upcoming := wheel.next_expiration()) is not None and upcoming <= now:
            wheel.advance(upcoming)
        wheel.advance(now)
        wheel.reschedule(entry, now + 30_000)

    assert entry.pending
    numbers = wheel.statistics()
    assert numbers.rescheduled == 3600
    assert numbers.cascaded < 3600


@pytest.mark.parametrize("kind", [TimingWheel, HeapWheel])
@pytest.mark.parametrize("tick", [1, 2, 1000, 2**60, 2**60 + 1, 2**61 - 1])
@pytest.mark.parametrize("start", [-(2**61) + 1, 0, 2**61 - 7])
def test_the_last_legal_deadlines_are_due_at_the_end_of_time(
    kind: type[TimingWheel | HeapWheel], tick: int, start: int
) -> None:
    """The last tick may end beyond the legal times, but the wheel requests only legal ones."""
    end = 2**61 - 1
    wheel = kind(tick, 2, start)
    entries = [wheel.schedule(deadline) for deadline in (end - 1, end, end)]

    due: list[object] = []
    while (upcoming := wheel.next_expiration()) is not None:
        due.extend(wheel.advance(upcoming))

    assert due == entries
    assert wheel.now <= end
    assert wheel.advance(end) == []
