"""For any order of calls, the wheel expires the same entries as a heap."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from aiowheel.wheel import HeapWheel, TimerEntry, TimingWheel
from aiowheel.wheel._heap import HeapEntry

Pair = tuple[TimerEntry, HeapEntry]

WHEEL_SIZES = st.sampled_from([2, 3, 4, 7, 20, 64, 256])
TICKS = st.sampled_from([1, 1, 2, 7, 10, 1000])


class WheelMatchesHeap(RuleBasedStateMachine):
    """Drive both with the same calls and compare all their results after every call."""

    pairs: Bundle[Pair] = Bundle("pairs")

    @initialize(
        tick=TICKS,
        wheel_size=WHEEL_SIZES,
        start=st.one_of(st.integers(-5_000, 5_000), st.integers(-(2**53), 2**60)),
    )
    def open(self, tick: int, wheel_size: int, start: int) -> None:
        """Begin with a random geometry."""
        self.tick = tick
        self.wheel_size = wheel_size
        self.wheel = TimingWheel(tick, wheel_size, start)
        self.heap = HeapWheel(tick, wheel_size, start)
        self.sequence = 0
        self.moved: set[object] = set()  # payloads without a defined order within a tick

    def distance(self, draw: tuple[int, int, int]) -> int:
        """Return a span of time near a block edge of a level, from level, blocks and offset."""
        level, blocks, beside = draw
        return blocks * self.tick * int(self.wheel_size**level) + beside

    DISTANCES = st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(-3, 3))

    def schedule_both(self, draw: tuple[int, int, int]) -> Pair:
        """Add a deadline to the wheel and to the heap."""
        self.sequence += 1
        deadline = self.heap.now + self.distance(draw)
        return (
            self.wheel.schedule(deadline, self.sequence),
            self.heap.schedule(deadline, self.sequence),
        )

    @rule(target=pairs, draw=DISTANCES)
    def schedule(self, draw: tuple[int, int, int]) -> Pair:
        """Add a deadline, which may be in the past."""
        return self.schedule_both(draw)

    @rule(pair=consumes(pairs))
    def cancel(self, pair: Pair) -> None:
        """Cancel twice; the second call has no effect."""
        entry, twin = pair

        was_pending = twin.cancel()

        assert entry.cancel() == was_pending
        assert not entry.cancel()
        assert (entry.payload is None) == was_pending

    @rule(target=pairs, pair=consumes(pairs), draw=DISTANCES)
    def reschedule(self, pair: Pair, draw: tuple[int, int, int]) -> Pair:
        """Move a pending entry in either direction, or arm a finished one again."""
        entry, twin = pair
        deadline = self.heap.now + self.distance(draw)
        self.moved.add(twin.payload)

        self.wheel.reschedule(entry, deadline)
        self.heap.reschedule(twin, deadline)

        assert entry.deadline == deadline
        return pair

    @rule(target=pairs, pair=consumes(pairs), further=st.integers(0, 5_000))
    def touch(self, pair: Pair, further: int) -> Pair:
        """Move a pending deadline later, as a server does for every message."""
        entry, twin = pair
        if twin.pending:
            self.moved.add(twin.payload)
            self.wheel.reschedule(entry, entry.deadline + further)
            self.heap.reschedule(twin, twin.deadline + further)
        return pair

    def compare_advance(self, now: int) -> None:
        """Advance both to *now*: same entries, same ticks in the same order, none early."""
        entries = self.wheel.advance(now)
        twins = self.heap.advance(now)

        assert all(entry.deadline <= now for entry in entries)
        assert not any(entry.pending for entry in entries)
        by_payload = {twin.payload: twin.deadline // self.tick for twin in twins}
        assert sorted(map(repr, by_payload)) == sorted(repr(entry.payload) for entry in entries)
        stay = [entry.payload for entry in entries if entry.payload not in self.moved]
        assert stay == [twin.payload for twin in twins if twin.payload not in self.moved]

    @rule(draw=DISTANCES)
    def advance(self, draw: tuple[int, int, int]) -> None:
        """Advance by nothing, by a few units, or to a tick beside a block edge of any level."""
        self.compare_advance(max(self.heap.now, self.heap.now + self.distance(draw)))

    @rule()
    def advance_to_next_expiration(self) -> None:
        """Advance as a driver does; at every such step an entry is less than a tick late."""
        upcoming = self.wheel.next_expiration()
        if upcoming is not None:
            late_before = [e for e in self.wheel.pending() if e.deadline + self.tick <= upcoming]
            overdue = [e for e in late_before if e.deadline > self.wheel.now]
            assert overdue == []
            self.compare_advance(upcoming)

    @rule(count=st.integers(1, 50), draw=DISTANCES)
    def churn(self, count: int, draw: tuple[int, int, int]) -> None:
        """Schedule and cancel many entries at once; only counts may remain."""
        deadline = self.heap.now + self.distance(draw)
        entries = [self.wheel.schedule(deadline + step, object()) for step in range(count)]
        assert all(entry.cancel() for entry in entries)

    @rule(target=pairs, draws=st.lists(DISTANCES, max_size=5))
    def schedule_many(self, draws: list[tuple[int, int, int]]) -> MultipleResults[Pair]:
        """Schedule several entries, so that some share a tick."""
        return multiple(*[self.schedule_both(draw) for draw in draws])

    @invariant()
    def agrees(self) -> None:
        """Check structure, counts and the next wake-up after every step."""
        if not hasattr(self, "wheel"):
            return
        self.wheel.check_invariants()
        assert len(self.wheel) == len(self.heap)
        assert self.wheel.now == self.heap.now
        promised, earliest = self.wheel.next_expiration(), self.heap.next_expiration()
        assert (promised is None) == (earliest is None)
        if promised is not None and earliest is not None:
            assert self.wheel.now <= promised <= earliest


WheelMatchesHeap.TestCase.settings = settings(
    max_examples=3 * settings().max_examples // 2, stateful_step_count=50
)
TestWheelMatchesHeap = pytest.mark.slow(WheelMatchesHeap.TestCase)
