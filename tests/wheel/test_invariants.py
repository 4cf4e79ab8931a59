"""`check_invariants` notices every damage that the other tests rely on it to notice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiowheel.wheel import TimingWheel
from aiowheel.wheel._level import Level
from aiowheel.wheel._statistics import Counts


class Sound:
    """A wheel with two levels, with a past, and with an entry on each level."""

    def __init__(self) -> None:
        self.wheel = TimingWheel(wheel_size=8)
        self.wheel.schedule(3)
        self.wheel.schedule(4).cancel()
        self.wheel.advance(9)
        self.near = self.wheel.schedule(11)  # the finest level covers 8 to 15
        self.far = self.wheel.schedule(29)
        self.finest = self.wheel._finest
        assert self.finest.coarser is not None
        self.coarser: Level = self.finest.coarser

    def count(self, **changes: int) -> None:
        """Change the counts by these numbers."""
        counts = self.wheel._counts
        for name, change in changes.items():
            setattr(counts, name, getattr(counts, name) + change)

    def set_current(self, tick: int) -> None:
        """Move the current tick without visiting the buckets on the way."""
        self.wheel._current = self.wheel._pass_end = tick

    def set_flag(self, slot: int, in_map: int, *, in_bucket: bool) -> None:
        """Set the flag of a slot in both places; the number of flags follows the map."""
        self.finest.flags += in_map - self.finest.occupied[slot]
        self.finest.occupied[slot] = in_map
        self.finest.buckets[slot].flagged = in_bucket

    def widen(self, width: int) -> None:
        """Change the width of the coarser level, but not the shift that stands for it."""
        self.finest.span = self.coarser.width = width


Damage = Callable[[Sound], object]
DAMAGE: dict[str, Damage] = {
    "a pending entry too many": lambda parts: parts.count(pending=1, expired=-1),
    "a pending entry too few": lambda parts: parts.count(pending=-1, expired=1),
    "a scheduled entry too many": lambda parts: parts.count(scheduled=1),
    "a scheduled entry too few": lambda parts: parts.count(scheduled=-1),
    "a cancelled entry too many": lambda parts: parts.count(cancelled=1),
    "an expired entry too many": lambda parts: parts.count(expired=1),
    "a pass that ends too early": lambda parts: setattr(parts.wheel, "_pass_end", 8),
    "the counts of another wheel": lambda parts: setattr(parts.near, "_counts", Counts()),
    "no counts": lambda parts: setattr(parts.near, "_counts", None),
    "a deadline before the bucket": lambda parts: setattr(parts.far, "_deadline", 28),
    "a bucket before the current tick": lambda parts: parts.set_current(12),
    "a bucket at the current tick": lambda parts: parts.set_current(11),
    "a coarser level that is too wide": lambda parts: setattr(parts.coarser, "width", 9),
    "a coarser level that is too narrow": lambda parts: setattr(parts.coarser, "width", 7),
    "a finest level that is too wide": lambda parts: setattr(parts.finest, "width", 2),
    "a finest level without width": lambda parts: setattr(parts.finest, "width", 0),
    "a block that begins too late": lambda parts: setattr(parts.finest, "base", 10),
    "a block that ends at the current tick": lambda parts: setattr(parts.finest, "limit", 9),
    "a block that ends too early": lambda parts: setattr(parts.finest, "limit", 8),
    "a flag too many": lambda parts: setattr(parts.finest, "flags", 2),
    "a flag too few": lambda parts: setattr(parts.finest, "flags", 0),
    "a flag only in the map": lambda parts: parts.set_flag(6, 1, in_bucket=False),
    "a flag only in the bucket": lambda parts: parts.set_flag(6, 0, in_bucket=True),
    "a bucket without a flag": lambda parts: parts.set_flag(3, 0, in_bucket=False),
    "an overdue entry filed for a tick": lambda parts: setattr(
        parts.wheel.schedule(2), "_filed", 5
    ),
    "an entry filed for the slot after": lambda parts: setattr(parts.near, "_filed", 12),
    "an entry filed for the slot before": lambda parts: setattr(parts.near, "_filed", 10),
    "buckets wider than the shift": lambda parts: parts.widen(12),
    "buckets narrower than the shift": lambda parts: parts.widen(5),
    "a shift that is too large": lambda parts: setattr(parts.coarser, "shift", 4),
    "a shift that is too small": lambda parts: setattr(parts.coarser, "shift", 2),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_noticed(damage: Damage) -> None:
    """The method raises AssertionError for each inconsistency."""
    parts = Sound()
    parts.wheel.check_invariants()

    damage(parts)

    with pytest.raises(AssertionError):
        parts.wheel.check_invariants()


def test_a_sound_wheel_passes_at_every_stage() -> None:
    """This includes an open pass, overdue entries, later deadlines, and an emptied bucket."""
    parts = Sound()
    wheel = parts.wheel
    wheel.schedule(2)
    wheel.check_invariants()
    wheel.reschedule(parts.near, 500)
    wheel.check_invariants()
    parts.far.cancel()
    wheel.check_invariants()
    wheel.open_pass(12)
    wheel.check_invariants()
    assert wheel.pop_due() is not None
    wheel.check_invariants()
