"""Deep counts of full buckets: correct after some snapshots, at a bounded cost per snapshot."""

import itertools

import pytest

from aiowheel.dashboard._occupancy import DEEP, Occupancy
from aiowheel.wheel import TimingWheel

pytestmark = pytest.mark.one_build


def test_full_buckets_are_counted_in_turns() -> None:
    """All are counted within a few snapshots, and keep their counts meanwhile."""
    wheel = TimingWheel(tick=1, wheel_size=16)
    sizes = {slot: 500 * slot for slot in range(1, 9)}
    for slot, size in sizes.items():
        for _ in range(size):
            wheel.schedule(slot)
    occupancy = Occupancy()

    snapshots = [occupancy.snapshot(wheel)[0][1] for _ in range(12)]

    wanted = "".join(f"{sizes.get(slot, 0).bit_length():x}" for slot in range(16))
    assert snapshots[-1] == wanted
    for before, after in itertools.pairwise(snapshots):
        assert all(known in {shown, "5"} for known, shown in zip(before, after, strict=True))


def test_a_bucket_beyond_the_scale_does_not_stop_the_others() -> None:
    """It gets the last power of the scale."""
    wheel = TimingWheel(tick=1, wheel_size=4)
    for slot, size in ((1, 2 * DEEP), (2, 2 * DEEP), (3, 100)):
        for _ in range(size):
            wheel.schedule(slot)
    occupancy = Occupancy()
    snapshots = [occupancy.snapshot(wheel)[0][1] for _ in range(4)]

    assert snapshots[-1] == "0dd7"


def test_a_bucket_that_was_emptied_is_dark() -> None:
    """Its earlier deep count is dropped."""
    wheel = TimingWheel(tick=1, wheel_size=4)
    entries = [wheel.schedule(2) for _ in range(500)]
    occupancy = Occupancy()
    assert occupancy.snapshot(wheel)[0][1] == "0090"
    for entry in entries[1:]:
        entry.cancel()
    assert occupancy.snapshot(wheel)[0][1] == "0010"


def test_a_snapshot_visits_a_bounded_number_of_entries() -> None:
    """The numbers of entries and buckets do not matter."""
    wheel = TimingWheel(tick=1, wheel_size=32)
    for slot in range(1, 31):
        for _ in range(3_000):
            wheel.schedule(slot)
    visited: list[int] = []
    count = TimingWheel.count_bucket

    class Counting:
        occupancy = wheel.occupancy

        def count_bucket(self, level: int, slot: int, most: int) -> int:
            visited.append(count(wheel, level, slot, most))
            return visited[-1]

    occupancy = Occupancy()
    for _ in range(20):
        visited.clear()
        occupancy.snapshot(Counting())  # type: ignore[arg-type]
        assert 0 < sum(visited) <= DEEP
