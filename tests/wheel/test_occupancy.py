"""How full the buckets are, for those who watch."""

from aiowheel.wheel import TimingWheel


def test_an_empty_wheel_has_one_dark_ring() -> None:
    """One level, as wide as it was made, from its start."""
    (level,) = TimingWheel(tick=10, wheel_size=8, start=1_000).occupancy(16)

    assert (level.base, level.width, level.counts) == (1_000, 10, bytes(8))


def test_entries_are_counted_in_the_bucket_they_wait_in() -> None:
    """By level and slot, up to the limit."""
    wheel = TimingWheel(tick=1, wheel_size=8)
    for deadline in (3, 3, 7, 20, *[45] * 30):
        wheel.schedule(deadline)

    finest, coarser = wheel.occupancy(16)

    assert list(finest.counts) == [0, 0, 0, 2, 0, 0, 0, 1]
    assert (coarser.base, coarser.width) == (0, 8)
    assert list(coarser.counts) == [0, 0, 1, 0, 0, 16, 0, 0]


def test_it_follows_the_wheel() -> None:
    """What was cancelled or returned is dark; a block that was left is the next one's."""
    wheel = TimingWheel(tick=1, wheel_size=8, start=100)
    cancelled = wheel.schedule(103)
    wheel.schedule(105)
    wheel.schedule(120)
    cancelled.cancel()
    wheel.advance(110)

    finest, coarser = wheel.occupancy(16)

    assert finest.base == 108
    assert sum(finest.counts) == 0
    assert coarser.counts[(120 - coarser.base) // coarser.width] == 1
    assert sum(coarser.counts) == 1
