"""Scheduling, moving, cancelling and expiring entries of the wheel."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from aiowheel.wheel import TimerEntry, TimingWheel

Expire = Callable[[TimingWheel, int, int], list[tuple[int, TimerEntry]]]


def payloads(entries: list[TimerEntry]) -> list[object]:
    """Return the payloads of *entries*, in order."""
    return [entry.payload for entry in entries]


def test_an_entry_is_due_at_its_deadline_and_not_a_unit_before() -> None:
    """For a deadline at a tick, the deadline itself is the first moment."""
    wheel = TimingWheel(tick=1, start=1000)
    entry = wheel.schedule(1020, "due")

    assert wheel.advance(1019) == []
    assert entry.pending
    assert wheel.advance(1020) == [entry]
    assert not entry.pending
    assert (entry.deadline, entry.payload) == (1020, "due")


def test_a_deadline_inside_a_tick_waits_for_the_ticks_end() -> None:
    """The deadline is rounded up: the tick of width 10 that holds 1021 to 1030 ends at 1030."""
    wheel = TimingWheel(tick=10, wheel_size=5, start=1000)
    entries = [wheel.schedule(deadline) for deadline in (1021, 1025, 1030)]

    assert wheel.advance(1029) == []
    assert wheel.advance(1030) == entries


@pytest.mark.parametrize("deadline", [999, 1000, 1005, -(2**61) + 1])
def test_a_deadline_at_or_before_now_is_due_on_the_next_advance(deadline: int) -> None:
    """It is due even if time does not move, and never inside `schedule`."""
    wheel = TimingWheel(tick=10, start=1005)
    entry = wheel.schedule(deadline)

    assert entry.pending
    assert wheel.next_expiration() == 1005
    assert wheel.advance(1005) == [entry]


def test_the_wheels_time_is_exact() -> None:
    """The time is the argument of `advance`, not truncated to a tick."""
    wheel = TimingWheel(tick=10, start=1000)

    wheel.advance(1005)

    assert wheel.now == 1005


def test_negative_times_are_times() -> None:
    """Deadlines round up on both sides of zero."""
    wheel = TimingWheel(tick=10, start=-95)
    entry = wheel.schedule(-71)

    assert wheel.next_expiration() == -70
    assert wheel.advance(-71) == []
    assert wheel.advance(-70) == [entry]


def test_time_never_goes_back() -> None:
    """The same time is legal; an earlier one raises and changes nothing."""
    wheel = TimingWheel(start=100)
    wheel.schedule(101)

    wheel.advance(100)
    with pytest.raises(ValueError, match="at least the wheel's time 100, got 99"):
        wheel.advance(99)

    assert wheel.now == 100
    assert len(wheel.advance(101)) == 1


def test_entries_come_by_tick_and_in_order_within_one() -> None:
    """The order is first in, first out, whatever the level of the entries was."""
    wheel = TimingWheel(tick=10, wheel_size=4)
    draws = random.Random(7).choices(range(2000), k=500)
    for number, deadline in enumerate(draws):
        wheel.schedule(deadline, number)

    due = payloads(wheel.advance(2000))

    assert due == sorted(range(500), key=lambda number: (-(-draws[number] // 10), number))


def test_a_later_entry_that_is_due_first_comes_first(expire: Expire) -> None:
    """The order of arming counts only within a tick."""
    wheel = TimingWheel()
    wheel.schedule(500, "armed first")
    wheel.schedule(3, "due first")

    assert [entry.payload for _, entry in expire(wheel, 1, 1000)] == ["due first", "armed first"]


def test_many_levels_return_what_they_were_given(expire: Expire) -> None:
    """With three buckets a level and six levels every entry is returned once."""
    wheel = TimingWheel(tick=1, wheel_size=3)
    given = [*range(5), *range(10, 100), *range(10, 100), *range(100, 500)]
    for deadline in given:
        wheel.schedule(deadline, deadline)
    assert wheel.statistics().levels >= 6

    expired = expire(wheel, 1, 2000)

    assert len(given) == 585
    assert Counter(entry.payload for _, entry in expired) == Counter(given)


def test_levels_appear_on_demand() -> None:
    """A wheel without far deadlines has one level; a far deadline adds levels, which stay."""
    wheel = TimingWheel(tick=10, wheel_size=5, start=1000)
    wheel.schedule(1040)
    assert wheel.statistics().levels == 1

    wheel.schedule(1060)
    wheel.schedule(1061)

    assert wheel.statistics().levels == 2


def test_a_jump_of_any_distance_expires_everything_on_the_way() -> None:
    """A thousand years of nanoseconds cost a few buckets, not one step for each tick."""
    wheel = TimingWheel(tick=1, wheel_size=256)
    deadlines = [1, 255, 256, 10**6, 10**12, 10**18]
    for deadline in reversed(deadlines):
        wheel.schedule(deadline, deadline)

    assert payloads(wheel.advance(2**60)) == deadlines
    wheel.check_invariants()
    assert wheel.next_expiration() is None


def test_after_oversleeping_a_new_entry_keeps_its_delay(expire: Expire) -> None:
    """A delay armed after a jump counts from there, not from the wheel's earlier time."""
    wheel = TimingWheel(wheel_size=4)
    wheel.schedule(2)
    wheel.advance(33)

    wheel.schedule(33 + 5, "new")

    assert expire(wheel, 1, 33 + 4) == []
    assert [at for at, _ in expire(wheel, 1, 100)] == [38]


def test_cancel_wins_once() -> None:
    """Only the call that cancels returns True; an expired entry cannot be cancelled."""
    wheel = TimingWheel()
    cancelled, expired = wheel.schedule(5, "a"), wheel.schedule(5, "b")

    assert cancelled.cancel()
    assert not cancelled.cancel()
    assert wheel.advance(5) == [expired]
    assert not expired.cancel()
    assert expired.payload == "b"


def test_a_cancelled_entry_leaves_its_neighbours_alone() -> None:
    """The first, middle and last entry of a bucket are cancelled; the others come in order."""
    wheel = TimingWheel()
    entries = [wheel.schedule(64, number) for number in range(7)]

    for number in (0, 3, 6):
        entries[number].cancel()
        wheel.check_invariants()

    assert payloads(wheel.advance(64)) == [1, 2, 4, 5]


def test_the_second_of_two_can_be_cancelled_after_the_first_expired() -> None:
    """Of two entries at the edge of a level, the first expires and the second is cancelled."""
    wheel = TimingWheel(wheel_size=64)
    first, second = wheel.schedule(63), wheel.schedule(64)

    assert wheel.advance(63) == [first]
    assert second.cancel()
    assert wheel.next_expiration() is None
    assert wheel.advance(200) == []


@pytest.mark.parametrize("later", [False, True])
def test_a_moved_entry_expires_at_its_new_deadline_only(expire: Expire, *, later: bool) -> None:
    """The entry expires once, however often it moved."""
    wheel = TimingWheel(tick=2, wheel_size=4)
    entry = wheel.schedule(100, "moved")
    moves = (200, 300, 400) if later else (90, 50, 13)
    for deadline in moves:
        wheel.reschedule(entry, deadline)

    expired = expire(wheel, 2, 1000)

    assert [(at, moved.payload) for at, moved in expired] == [(-(-moves[-1] // 2) * 2, "moved")]


def test_moving_later_touches_no_bucket() -> None:
    """The entry stays in its bucket, which files it again when it expires."""
    wheel = TimingWheel()
    entry = wheel.schedule(10)
    for deadline in range(11, 1011):
        wheel.reschedule(entry, deadline)

    assert wheel.next_expiration() == 10
    assert wheel.advance(10) == []
    assert wheel.statistics().cascaded == 1
    assert wheel.statistics().rescheduled == 1000
    assert entry.pending


def test_moving_to_the_past_makes_it_due() -> None:
    """The entry is due at the next advance, even if time does not move."""
    wheel = TimingWheel(start=50)
    entry = wheel.schedule(10**9)

    wheel.reschedule(entry, 0)

    assert wheel.next_expiration() == 50
    assert wheel.advance(50) == [entry]


def test_an_entry_moved_into_anothers_bucket_can_be_cancelled() -> None:
    """The links of both buckets stay intact."""
    wheel = TimingWheel()
    stays, moves = wheel.schedule(20, "stays"), wheel.schedule(30, "moves")

    wheel.reschedule(moves, 20)
    assert moves.cancel()
    wheel.check_invariants()

    assert payloads(wheel.advance(100)) == ["stays"]
    assert not stays.pending


@pytest.mark.parametrize("how", ["cancelled", "expired"])
def test_a_finished_entry_can_be_armed_again(how: str) -> None:
    """Arming again counts as another scheduled entry."""
    wheel = TimingWheel()
    entry = wheel.schedule(5)
    if how == "cancelled":
        entry.cancel()
    wheel.advance(5)

    wheel.reschedule(entry, 9)

    assert entry.pending
    assert wheel.advance(9) == [entry]
    assert wheel.statistics().scheduled == 2


def test_an_entry_of_another_wheel_is_refused() -> None:
    """The entry would hang in one wheel and count in the other."""
    ours, theirs = TimingWheel(), TimingWheel()
    entry = theirs.schedule(5)

    with pytest.raises(ValueError, match="pending in this wheel"):
        ours.reschedule(entry, 6)

    assert (len(ours), len(theirs)) == (0, 1)
    assert entry.deadline == 5


def test_pending_lists_every_entry() -> None:
    """The list covers all levels and overdue entries."""
    wheel = TimingWheel(wheel_size=4, start=10)
    entries = {wheel.schedule(deadline) for deadline in (3, 12, 40, 10**6)}

    assert set(wheel.pending()) == entries


def test_clear_cancels_everything_and_keeps_the_payloads() -> None:
    """The wheel can be used afterwards."""
    wheel = TimingWheel(wheel_size=4)
    for deadline in (0, 1, 100, 10**9):
        wheel.schedule(deadline, deadline)

    dropped = wheel.clear()

    assert sorted(payloads(dropped), key=repr) == [0, 1, 100, 10**9]
    assert not any(entry.pending or entry.cancel() for entry in dropped)
    assert (len(wheel), wheel.next_expiration()) == (0, None)
    wheel.check_invariants()
    again = wheel.schedule(7)
    assert wheel.advance(10**10) == [again]


def test_entries_armed_while_a_pass_is_open_wait_for_the_next() -> None:
    """Otherwise a deadline in the past could keep a pass from ending."""
    wheel = TimingWheel()
    wheel.schedule(3, "due")
    wheel.open_pass(10)
    first = wheel.pop_due()
    late = wheel.schedule(4, "late")

    while wheel.pass_is_open():
        assert wheel.pop_due() is None

    assert first is not None
    assert wheel.next_expiration() == 10
    assert wheel.advance(10) == [late]


def test_extending_an_open_pass_includes_entries_armed_for_the_past() -> None:
    """Each entry is returned once in this pass, although its tick ends later."""
    wheel = TimingWheel(tick=10)
    due = [wheel.schedule(20, number) for number in range(3)]
    wheel.open_pass(37)
    popped = [wheel.pop_due()]
    late = wheel.schedule(36, "late")

    wheel.open_pass(38)
    while wheel.pass_is_open():
        popped.append(wheel.pop_due())

    assert [entry for entry in popped if entry is not None] == [*due, late]
    assert wheel.next_expiration() is None
    wheel.check_invariants()


def test_an_entry_due_in_an_open_pass_can_be_cancelled_or_moved() -> None:
    """Until it is popped, the caller may cancel or move an entry."""
    wheel = TimingWheel()
    cancelled, later, earlier, stays = (wheel.schedule(3, name) for name in "cles")
    wheel.open_pass(10)

    assert cancelled.cancel()
    wheel.reschedule(later, 500)
    wheel.reschedule(earlier, 1)
    popped: list[object] = []
    while wheel.pass_is_open():
        entry = wheel.pop_due()
        if entry is not None:
            popped.append(entry)

    assert popped == [stays]
    assert wheel.advance(10) == [earlier]
    assert wheel.advance(499) == []
    assert wheel.advance(500) == [later]
    wheel.check_invariants()


def test_statistics_equal_a_recount() -> None:
    """After any calls the counts agree with a recount."""
    rng = random.Random(23)
    wheel = TimingWheel(tick=3, wheel_size=4)
    count: Counter[str] = Counter()
    entries: list[TimerEntry] = []
    for _ in range(3000):
        match rng.randrange(4):
            case 0 | 1:
                entries.append(wheel.schedule(wheel.now + rng.randrange(-5, 500)))
                count["scheduled"] += 1
            case 2 if entries:
                count["cancelled"] += rng.choice(entries).cancel()
            case _:
                count["expired"] += len(wheel.advance(wheel.now + rng.randrange(20)))

    numbers = wheel.statistics()

    assert numbers.scheduled == count["scheduled"]
    assert numbers.cancelled == count["cancelled"]
    assert numbers.expired == count["expired"]
    assert numbers.pending == len(wheel) == sum(entry.pending for entry in entries)
    assert numbers.pending == count["scheduled"] - count["cancelled"] - count["expired"]
    assert 0 < numbers.occupied_buckets <= numbers.pending
