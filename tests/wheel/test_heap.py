"""The binary heap with the wheel's interface: the oracle of other tests must be right itself."""

from __future__ import annotations

import random
from typing import Any

import pytest

from aiowheel.wheel import HeapWheel, TimingWheel


def test_a_deadline_is_due_at_the_end_of_its_tick() -> None:
    """The tick of width 10 that holds 1021 to 1030 ends at 1030."""
    heap = HeapWheel(tick=10, start=1005)
    entries = [heap.schedule(deadline) for deadline in (1021, 1025, 1030)]

    assert heap.next_expiration() == 1030
    assert heap.advance(1029) == []
    assert all(entry.pending for entry in entries)
    assert heap.advance(1030) == entries
    assert not any(entry.pending for entry in entries)
    assert (len(heap), heap.next_expiration()) == (0, None)


@pytest.mark.parametrize("deadline", [-3, 4, 5])
def test_a_deadline_at_or_before_now_is_due_at_once(deadline: int) -> None:
    """The next expiration is now, although the deadline's tick begins or ends at another time."""
    heap = HeapWheel(tick=10, start=5)
    entry = heap.schedule(deadline)

    assert heap.next_expiration() == 5
    assert heap.advance(5) == [entry]


def test_entries_that_are_due_at_once_come_before_the_next_tick_and_in_order() -> None:
    """They count for the tick that holds now, whatever their deadlines are."""
    heap = HeapWheel(tick=10, start=25)
    entries = [heap.schedule(deadline, deadline) for deadline in (31, 24, 26, 3, 25, 30)]

    assert [entry.payload for entry in heap.advance(40)] == [24, 3, 25, 26, 30, 31]
    assert [entry.deadline for entry in entries] == [31, 24, 26, 3, 25, 30]


def test_a_jump_returns_every_entry_on_the_way() -> None:
    """The entries come by tick, and within a tick in the order in which they were armed."""
    heap = HeapWheel()
    for number, deadline in enumerate((500, 7, 12, 7, 500, 901)):
        heap.schedule(deadline, number)

    assert [entry.payload for entry in heap.advance(900)] == [1, 3, 2, 0, 4]
    assert (heap.now, len(heap), heap.next_expiration()) == (900, 1, 901)


def test_cancelling_works_once_and_only_while_pending() -> None:
    """A cancelled entry drops its payload; the next expiration is that of the other entries."""
    heap = HeapWheel()
    first, second = heap.schedule(5, "first"), heap.schedule(9, "second")

    assert first.pending
    assert first.cancel()
    assert not first.pending
    assert not first.cancel()
    assert first.payload is None
    assert (len(heap), heap.next_expiration()) == (1, 9)
    assert heap.advance(9) == [second]
    assert not second.cancel()
    assert (second.payload, len(heap)) == ("second", 0)


@pytest.mark.parametrize("deadline", [2, 40])
def test_a_moved_entry_is_due_once_at_its_new_deadline(deadline: int) -> None:
    """The heap item of the earlier deadline has no effect."""
    heap = HeapWheel()
    entry = heap.schedule(20)

    heap.reschedule(entry, deadline)

    assert (len(heap), heap.next_expiration(), entry.deadline) == (1, deadline, deadline)
    assert heap.advance(deadline - 1) == []
    assert heap.advance(deadline) == [entry]
    assert heap.advance(100) == []


def test_an_entry_can_be_armed_again_in_another_heap() -> None:
    """The heap item in the first heap has no effect."""
    first, second = HeapWheel(), HeapWheel()
    entry = first.schedule(5)
    entry.cancel()

    second.reschedule(entry, 7)

    assert (len(first), first.next_expiration()) == (0, None)
    assert (len(second), second.next_expiration()) == (1, 7)
    assert first.advance(100) == []
    assert second.advance(7) == [entry]


def test_a_heap_without_arguments_has_the_wheels_defaults() -> None:
    """One unit a tick, from time zero."""
    heap, wheel = HeapWheel(), TimingWheel()

    assert (heap.tick, heap.now) == (wheel.tick, wheel.now) == (1, 0)


@pytest.mark.parametrize("arguments", [{"tick": 0}, {"wheel_size": 1}, {"start": -(2**61)}])
def test_a_heap_refuses_what_a_wheel_refuses(arguments: dict[str, Any]) -> None:
    """Both raise the same error."""
    with pytest.raises(ValueError, match="must be from") as heaps:
        HeapWheel(**arguments)
    with pytest.raises(ValueError, match="must be from") as wheels:
        TimingWheel(**arguments)

    assert str(heaps.value) == str(wheels.value)


@pytest.mark.parametrize("arguments", [{"tick": 1}, {"wheel_size": 2}, {"start": -(2**61) + 1}])
def test_a_heap_accepts_the_least_legal_arguments(arguments: dict[str, Any]) -> None:
    """The limits belong to the legal range."""
    heap = HeapWheel(**arguments)

    assert heap.now == arguments.get("start", 0)


def test_a_heap_refuses_wrong_times() -> None:
    """An earlier time and a deadline out of range raise, and change nothing."""
    heap = HeapWheel(start=100)

    with pytest.raises(ValueError, match="at least the wheel's time 100, got 99"):
        heap.advance(99)
    with pytest.raises(OverflowError, match="deadline must be"):
        heap.schedule(2**61)

    assert (heap.now, len(heap)) == (100, 0)


@pytest.mark.parametrize("seed", range(6))
def test_wheel_and_heap_agree_on_random_calls(seed: int) -> None:
    """Both return the same entries at each time; the wheel wakes up no later than the heap."""
    rng = random.Random(seed)
    tick, wheel_size, start = rng.choice([1, 3, 10]), rng.choice([2, 5, 8]), rng.randrange(-50, 50)
    wheel, heap = TimingWheel(tick, wheel_size, start), HeapWheel(tick, wheel_size, start)
    pairs = [(wheel.schedule(start, 0), heap.schedule(start, 0))]
    for number in range(1, 150):
        deadline = heap.now + rng.choice([-7, 0, 1, tick, 3 * tick + 1, rng.randrange(900)])
        entry, twin = rng.choice(pairs)
        match rng.randrange(6):
            case 0 | 1:
                pairs.append((wheel.schedule(deadline, number), heap.schedule(deadline, number)))
            case 2:
                assert entry.cancel() == twin.cancel()
            case 3:
                wheel.reschedule(entry, deadline)
                heap.reschedule(twin, deadline)
            case _:
                now = heap.now + rng.choice([0, 1, tick, 2 * tick + 1, 4 * wheel_size])
                due, twins = wheel.advance(now), heap.advance(now)
                assert {id(entry) for entry in due} == {
                    id(pair[0]) for pair in pairs if pair[1] in twins
                }
                assert len(due) == len(twins)
        wheel.check_invariants()
        assert (len(wheel), wheel.now) == (len(heap), heap.now)
        promised, earliest = wheel.next_expiration(), heap.next_expiration()
        assert (promised is None) == (earliest is None)
        assert promised is None or earliest is None or heap.now <= promised <= earliest
