"""One level: the ticks that a slot covers, the end of a block, and the next slot with an entry."""

from __future__ import annotations

import pytest

from aiowheel.wheel import TimerEntry
from aiowheel.wheel._level import Level

FAR = 2**40


@pytest.mark.parametrize(
    ("width", "shift"), [(1, 0), (2, 1), (3, -1), (5, -1), (6, -1), (8, 3), (1000, -1)]
)
def test_a_slot_covers_as_many_ticks_as_it_is_wide(width: int, shift: int) -> None:
    """The slots divide the block from its start; a width that is a power of two becomes a shift."""
    block = 7 * width
    level = Level(width, 7, 3 * block + width // 2, FAR)

    assert (level.base, level.limit, level.span) == (3 * block, 4 * block, block)
    assert level.shift == shift
    ends = [level.base + slot * width + rest for slot in range(7) for rest in (0, width - 1)]
    assert [level.slot_of(tick) for tick in ends] == [slot for slot in range(7) for _ in (0, 1)]

    level.move_to(-1)
    assert (level.base, level.limit) == (-block, 0)


@pytest.mark.parametrize(("horizon", "span"), [(69, 69), (70, 70), (71, 70), (9, 9)])
def test_the_last_level_ends_at_the_horizon(horizon: int, span: int) -> None:
    """The product of width and size would be beyond the horizon."""
    assert Level(10, 7, 0, horizon).span == span
    assert Level(2**61, 2, 0, 2**62 - 1).span == 2**62 - 1


def test_a_level_without_entries_has_no_next_slot() -> None:
    """No slot is set in the map."""
    assert Level(3, 8, 24, FAR).next_occupied(24) == -1


def test_the_next_slot_is_after_the_present_one() -> None:
    """Slots that cancellations have emptied are skipped, and their flags are cleared."""
    level = Level(3, 8, 24, FAR)
    entries = [TimerEntry(tick, None) for tick in (25, 31, 34, 34, 47)]
    for entry in entries:
        level.append(entry, entry.deadline)

    assert level.flags == sum(level.occupied) == 4
    assert [level.next_occupied(tick) for tick in (24, 26, 27, 31, 33, 44, 45)] == [
        *(2, 2, 2, 3, 7, 7, -1)
    ]
    for entry in entries[1:4]:
        entry.unlink()
    assert level.next_occupied(24) == 7
    assert list(level.occupied) == [1, 0, 0, 0, 0, 0, 0, 1]
    assert level.flags == 2

    taken = level.take(7)
    assert list(taken) == entries[4:]
    taken.unlink_all()
    assert level.next_occupied(24) == -1
    assert level.flags == sum(level.occupied) == 1
    entries[0].unlink()
