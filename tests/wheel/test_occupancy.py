"""The number of entries in the buckets, for monitoring."""

import pytest

from aiowheel.wheel import TimingWheel


def test_an_empty_wheel_has_one_empty_level() -> None:
    """It has one level of the given size, with no entries."""
    (level,) = TimingWheel(tick=10, wheel_size=8, start=1_000).occupancy(16)

    assert (level.base, level.width, level.counts) == (1_000, 10, bytes(8))


def test_entries_are_counted_in_the_bucket_they_wait_in() -> None:
    """Entries count by level and slot, up to the limit."""
    wheel = TimingWheel(tick=1, wheel_size=8)
    for deadline in (3, 3, 7, 20, *[45] * 30):
        wheel.schedule(deadline)

    finest, coarser = wheel.occupancy(16)

    assert list(finest.counts) == [0, 0, 0, 2, 0, 0, 0, 1]
    assert (coarser.base, coarser.width) == (0, 8)
    assert list(coarser.counts) == [0, 0, 1, 0, 0, 16, 0, 0]


def test_occupancy_follows_the_wheel() -> None:
    """Cancelled and returned entries do not count; the block that was left is the next turn's."""
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


def test_one_bucket_is_counted_beyond_the_limit() -> None:
    """The caller sets the limit; a bucket that was left is empty."""
    wheel = TimingWheel(tick=1, wheel_size=8)
    entries = [wheel.schedule(45) for _ in range(1_000)]
    wheel.schedule(3).cancel()

    assert wheel.count_bucket(1, 5, 10_000) == 1_000
    assert wheel.count_bucket(1, 5, 300) == 300
    assert wheel.count_bucket(0, 3, 10) == 0
    for entry in entries:
        entry.cancel()
    assert wheel.count_bucket(1, 5, 10) == 0


@pytest.mark.parametrize(
    ("level", "slot", "most", "text"),
    [
        (2, 0, 1, "level must be from 0 to 1, got 2"),
        (-1, 0, 1, "level must be from 0 to 1, got -1"),
        (0, 8, 1, "slot must be from 0 to 7, got 8"),
        (0, -1, 1, "slot must be from 0 to 7, got -1"),
        (0, 0, 0, "most must be from 1 to 2147483647, got 0"),
        (0, 0, 2**31, "most must be from 1 to 2147483647, got 2147483648"),
    ],
)
def test_a_count_out_of_range_is_refused(level: int, slot: int, most: int, text: str) -> None:
    """The error names the legal range."""
    wheel = TimingWheel(tick=1, wheel_size=8)
    wheel.schedule(45)
    with pytest.raises(ValueError, match=text):
        wheel.count_bucket(level, slot, most)


def test_the_limits_of_the_counts_belong_to_the_legal_range() -> None:
    """One bucket can be counted to 1 or to 2**31 - 1; the map of a level from 1 to 255."""
    wheel = TimingWheel(tick=10, wheel_size=8)
    for deadline in (10, 70, *[70] * 299):
        wheel.schedule(deadline)

    assert wheel.count_bucket(0, 0, 1) == 0
    assert wheel.count_bucket(0, 7, 1) == 1
    assert wheel.count_bucket(0, 7, 2**31 - 1) == 300
    assert wheel.occupancy(1)[0].counts[7] == 1
    assert wheel.occupancy(255)[0].counts[7] == 255
    for most in (0, 256):
        with pytest.raises(ValueError, match=f"most must be from 1 to 255, got {most}"):
            wheel.occupancy(most)


@pytest.mark.parametrize("start", [-95, 1005])
def test_the_occupancy_of_a_later_block_has_its_times(start: int) -> None:
    """Each ring's first bucket begins at a multiple of the ring's width after the first tick."""
    wheel = TimingWheel(tick=10, wheel_size=4, start=start)
    wheel.schedule(start + 500)
    wheel.advance(start + 175)

    first = start - 5
    assert [(level.base - first, level.width) for level in wheel.occupancy(9)] == [
        *((160, 10), (160, 40), (0, 160))
    ]
