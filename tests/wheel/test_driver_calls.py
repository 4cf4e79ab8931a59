"""The calls of a driver: arming at a fresh time, moving, taking, and passes in steps."""

from __future__ import annotations

import random

import pytest

from aiowheel.wheel import LevelOccupancy, TimerEntry, TimingWheel
from aiowheel.wheel._statistics import Counts
from aiowheel.wheel._wheel import HORIZON, LIMIT, MOST_BUCKETS, checked_wheel_size


def popped(wheel: TimingWheel) -> list[TimerEntry]:
    """Return the entries of the open pass, in order."""
    entries: list[TimerEntry] = []
    while wheel.pass_is_open():
        entry = wheel.pop_due()
        if entry is not None:
            entries.append(entry)
    return entries


# --- arming ---------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [1005, 5, -75])
def test_arming_moves_time_only_from_the_end_of_a_block(start: int) -> None:
    """Within the finest level's block, time need not move; its end is the first time that counts.

    The block holds 8 ticks of width 10 and begins with the tick that holds the start.
    """
    wheel = TimingWheel(tick=10, wheel_size=8, start=start)
    before = start
    for end in (start + 75, start + 155):
        wheel.arm(TimerEntry(end + 10**6, None), end - 1)
        assert wheel.now == before
        wheel.arm(TimerEntry(end + 10**6, None), end)
        assert wheel.now == end
        before = end
    wheel.arm(TimerEntry(start + 10**6, None), start + 999)
    assert wheel.now == start + 999
    wheel.check_invariants()


@pytest.mark.parametrize("pending", [None, 5120, 10**6])
@pytest.mark.parametrize("start", [-105, 3, 1000])
def test_a_short_delay_after_an_idle_time_is_filed_at_the_finest_level(
    start: int, pending: int | None
) -> None:
    """This holds whether the wheel is empty or an entry is pending for a later tick."""
    wheel = TimingWheel(tick=10, wheel_size=8, start=start)
    if pending is not None:
        wheel.schedule(start + pending)
    now = start + 4990

    wheel.arm(TimerEntry(now + 5, None), now)

    finest = wheel.occupancy(9)[0]
    assert wheel.now == now
    assert sum(finest.counts) >= 1
    assert finest.base <= now < finest.base + 8 * finest.width
    wheel.check_invariants()


@pytest.mark.parametrize(("due", "now"), [(30, 4990), (4990, 4990), (5120, 5125)])
def test_arming_never_moves_time_to_a_pending_bucket(due: int, now: int) -> None:
    """The bucket may begin before the present tick or with it; its entry is not lost."""
    wheel = TimingWheel(tick=10, wheel_size=8)
    entry = wheel.schedule(due)

    wheel.arm(TimerEntry(10**6, None), now)

    assert wheel.now == 0
    assert wheel.advance(now) == [entry]


def test_arming_does_not_move_time_past_an_overdue_entry() -> None:
    """An entry that is due at once is returned first."""
    wheel = TimingWheel(tick=10, wheel_size=8)
    entry = wheel.schedule(0)

    wheel.arm(TimerEntry(10**6, None), 4990)

    assert wheel.now == 0
    assert wheel.advance(0) == [entry]


@pytest.mark.parametrize("popped_already", [0, 1])
def test_arming_does_not_move_time_during_a_pass(popped_already: int) -> None:
    """The pass may not have visited a bucket yet, or may have entries left."""
    wheel = TimingWheel(tick=10, wheel_size=8)
    entries = [wheel.schedule(30) for _ in range(2)]
    wheel.open_pass(60)
    for _ in range(popped_already):
        wheel.pop_due()

    wheel.arm(TimerEntry(10**6, None), 4990)

    assert wheel.now == 60
    assert popped(wheel) == entries[popped_already:]


def test_arming_does_not_move_time_during_a_pass_over_empty_buckets() -> None:
    """A pass is open until its last bucket was visited, even if all buckets are empty."""
    wheel = TimingWheel(tick=10, wheel_size=8)
    wheel.open_pass(60)

    wheel.arm(TimerEntry(10**6, None), 4990)

    assert wheel.now == 60
    assert popped(wheel) == []


@pytest.mark.parametrize("start", [0, -1000])
@pytest.mark.parametrize(
    ("deadline", "due", "now"),
    [(3, 6, 6), (5, 6, 6), (6, 6, 6), (7, 10, 5), (10, 10, 5), (11, 20, 5), (200, 200, 5)],
)
def test_arming_returns_when_the_entry_is_due(
    deadline: int, due: int, now: int, start: int
) -> None:
    """A deadline that has passed is due now, and time moves to now; another one is rounded up."""
    wheel = TimingWheel(tick=10, wheel_size=8, start=start + 5)
    entry = TimerEntry(start + deadline, None)

    assert wheel.arm(entry, start + 6) == start + due
    assert wheel.now == start + now
    assert wheel.due_at(entry) == start + due
    assert wheel.next_expiration() == start + due or due == 200


def test_a_late_entry_reports_how_late() -> None:
    """The delay is negative before the deadline."""
    entry = TimerEntry(30, None)

    assert [entry.late_at(now) for now in (27, 30, 35)] == [-3, 0, 5]


# --- moving ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(3, 4), (3, 6), (3, 3), (4, 3), (9, 6), (9, 2)])
def test_an_entry_moved_to_a_time_already_past_is_due_at_once(before: int, after: int) -> None:
    """Its bucket would be visited only at the end of the tick."""
    wheel = TimingWheel(tick=10)
    entry = TimerEntry(before, None)
    wheel.arm(entry, 1)
    wheel.observe_now(6)

    wheel.move(entry, after)

    assert wheel.due_at(entry) == 6
    assert wheel.next_expiration() == 6
    wheel.open_pass(6)
    assert popped(wheel) == [entry]


def test_an_entry_moved_within_its_tick_keeps_its_place() -> None:
    """The bucket is the same, so the entry need not be filed again."""
    wheel = TimingWheel(tick=10, wheel_size=8)
    entries = [wheel.schedule(deadline) for deadline in (108, 109, 105)]

    wheel.move(entries[0], 101)
    wheel.move(entries[1], 110)

    assert wheel.advance(110) == entries
    assert wheel.statistics().cascaded == 3  # from the overflow level


def test_an_entry_moved_later_and_then_less_late_stays_in_its_bucket() -> None:
    """Its bucket comes up before either deadline."""
    wheel = TimingWheel()
    entry = wheel.schedule(10)

    wheel.move(entry, 500)
    wheel.move(entry, 300)

    assert wheel.next_expiration() == 10
    assert wheel.advance(299) == []
    assert wheel.advance(300) == [entry]


@pytest.mark.parametrize("start", [0, 1000, -1000])
def test_an_entry_moved_earlier_is_filed_in_its_new_bucket(start: int) -> None:
    """The wheel requests the new time, and after an earlier bucket none."""
    wheel = TimingWheel(tick=10, wheel_size=8, start=start)
    entry = wheel.schedule(start + 70)

    for deadline in (61, 60, 22):
        wheel.move(entry, start + deadline)
        assert wheel.next_expiration() == start - (-deadline // 10) * 10

    assert wheel.advance(start + 29) == []
    assert wheel.advance(start + 30) == [entry]
    assert wheel.statistics().rescheduled == 3


# --- time -----------------------------------------------------------------------------------


def test_observed_time_never_goes_back() -> None:
    """No bucket is visited; a deadline up to the observed time is due at once."""
    wheel = TimingWheel(tick=10)
    pending = wheel.schedule(3)
    wheel.observe_now(5)
    wheel.observe_now(4)

    assert wheel.now == 5
    assert pending.pending
    assert wheel.next_expiration() == 10
    overdue = wheel.schedule(5)
    assert wheel.next_expiration() == 5
    assert wheel.advance(5) == [overdue]
    assert wheel.advance(10) == [pending]


def test_a_pass_is_open_until_its_last_bucket_is_empty() -> None:
    """After the last entry of the last bucket the pass is over."""
    wheel = TimingWheel(tick=10)
    entries = [wheel.schedule(deadline) for deadline in (30, 20, 30)]
    assert not wheel.pass_is_open()

    wheel.open_pass(30)
    order: list[TimerEntry | None] = []
    while wheel.pass_is_open():
        order.append(wheel.pop_due())
        wheel.check_invariants()
        assert wheel.next_expiration() == (30 if len(wheel) else None)

    assert order == [entries[1], entries[0], entries[2]]
    assert wheel.pop_due() is None


def test_a_step_of_a_pass_takes_a_thousand_turns_at_most() -> None:
    """The first turn takes the bucket; each other turn cascades one entry."""
    wheel = TimingWheel(wheel_size=4)
    entries = [wheel.schedule(17) for _ in range(2500)]
    wheel.open_pass(16)

    cascaded: list[int] = []
    while wheel.pass_is_open():
        assert wheel.pop_due() is None
        cascaded.append(wheel.statistics().cascaded)

    assert cascaded == [999, 1999, 2500]
    assert wheel.advance(17) == entries


def test_a_due_entry_can_be_taken_before_the_pass_reaches_it() -> None:
    """It counts as expired, keeps its payload, and is not returned again."""
    wheel = TimingWheel()
    first, taken, last = (wheel.schedule(5, name) for name in ("first", "taken", "last"))
    wheel.open_pass(9)

    wheel.take(taken)

    assert not taken.pending
    assert taken.payload == "taken"
    assert not taken.cancel()
    assert len(wheel) == 2
    assert wheel.statistics().expired == 1
    wheel.check_invariants()
    assert popped(wheel) == [first, last]


# --- the order of overdue entries -----------------------------------------------------------


@pytest.mark.parametrize(
    "deadlines", [(), (-9,), (-9, -8, -8), (4, 3, 5, 3, 0, 5, -2), (5, 5, 4), (-LIMIT, 2, -LIMIT)]
)
def test_overdue_entries_can_be_sorted_by_deadline(deadlines: tuple[int, ...]) -> None:
    """Entries with equal deadlines keep their order."""
    wheel = TimingWheel(start=5)
    entries = [wheel.schedule(deadline) for deadline in deadlines]
    pending = wheel.schedule(6)

    wheel.sort_overdue()

    wheel.check_invariants()
    assert wheel.advance(5) == sorted(entries, key=lambda entry: entry.deadline)
    assert wheel.advance(6) == [pending]


# --- construction ---------------------------------------------------------------------------


def test_a_wheel_without_arguments_has_256_buckets_of_one_unit() -> None:
    """Its time begins at zero."""
    wheel = TimingWheel()

    assert (wheel.tick, wheel.now) == (1, 0)
    assert wheel.occupancy(1) == [LevelOccupancy(base=0, width=1, counts=bytes(256))]
    assert TimingWheel(tick=7).tick == 7


def test_the_limits_belong_to_the_legal_range() -> None:
    """The largest wheel is not built: it has 2**24 buckets."""
    assert checked_wheel_size(2) == 2
    assert checked_wheel_size(2**24) == MOST_BUCKETS
    with pytest.raises(ValueError, match="wheel_size must be from 2 to 16777216, got 16777217"):
        checked_wheel_size(2**24 + 1)
    for start in (-LIMIT, LIMIT):
        wheel = TimingWheel(tick=LIMIT, wheel_size=2, start=start)
        assert (wheel.tick, wheel.now) == (2**61 - 1, start)
    with pytest.raises(ValueError, match=f"tick must be from 1 to {LIMIT}, got {LIMIT + 1}"):
        TimingWheel(tick=LIMIT + 1)
    for start in (-LIMIT - 1, LIMIT + 1):
        with pytest.raises(
            ValueError, match=f"start must be from -{LIMIT} to {LIMIT}, got {start}"
        ):
            TimingWheel(start=start)


def test_the_ticks_between_two_legal_times_fit_into_64_bits() -> None:
    """A block begins at most one horizon after the start and is at most one horizon long."""
    assert 2 * LIMIT < HORIZON
    assert 2 * HORIZON < 2**63


def test_a_wheel_can_share_its_counts() -> None:
    """The counts of two wheels add up; anything else is refused."""
    counts = Counts()
    first, second = TimingWheel(counts=counts), TimingWheel(counts=counts)
    entries = [first.schedule(5), second.schedule(5), second.schedule(6)]
    entries[2].cancel()

    assert first.advance(5) == [entries[0]]
    assert (counts.scheduled, counts.pending, counts.expired, counts.cancelled) == (3, 1, 1, 1)
    with pytest.raises(TypeError, match="counts must be a Counts or None, got 5"):
        TimingWheel(counts=5)  # type: ignore[arg-type]


def test_the_counts_of_a_new_wheel_are_zero() -> None:
    """One level is in use."""
    assert TimingWheel().statistics() == (0, 1, 0, 0, 0, 0, 0, 0)


def test_statistics_count_the_buckets_with_an_entry() -> None:
    """Overdue entries occupy one bucket, whatever their number; the entries' buckets count once."""
    wheel = TimingWheel(wheel_size=8)
    for deadline in (0, 0, 3, 3, 4, 20, 21, 40):
        wheel.schedule(deadline)

    assert wheel.statistics().occupied_buckets == 5
    assert wheel.statistics().levels == 2


# --- all calls ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_random_calls_of_a_driver_lose_nothing_and_fire_nothing_early(seed: int) -> None:
    """After each complete pass, the pending entries are exactly those whose tick has not ended."""
    rng = random.Random(seed)
    tick, wheel_size = rng.choice([1, 4, 10]), rng.choice([2, 3, 8])
    now = rng.randrange(-200, 200)
    wheel = TimingWheel(tick, wheel_size, now)
    entries = [TimerEntry(now, None)]
    for _ in range(200):
        delay = rng.choice([-5, 0, 1, tick, rng.randrange(40), rng.randrange(2000)])
        entry = rng.choice(entries)
        match rng.randrange(8):
            case 0 | 1 | 2:
                now += rng.choice([0, 0, 1, tick, 7 * tick])
                entries.append(TimerEntry(now + delay, None))
                due = wheel.arm(entries[-1], now)
                assert due >= max(now + delay, wheel.now)
                assert due == wheel.now or 0 <= due - now - delay < tick
            case 3 | 4 if entry.pending:
                if delay <= 0:
                    wheel.observe_now(now)
                wheel.move(entry, now + delay)
            case 5 if entry.pending:
                assert entry.cancel()
            case 6:
                now += rng.choice([0, 1, tick, 3 * tick + 1, 90])
                wheel.open_pass(now)
                first = wheel.pop_due()
                assert first is None or first.deadline <= now
            case _:
                now += rng.choice([0, 1, tick, 3 * tick + 1, 90])
                wheel.open_pass(now)
                assert all(entry.deadline <= now for entry in popped(wheel))
                reached = now // tick * tick
                assert all(entry.deadline > reached for entry in wheel.pending())
        wheel.check_invariants()
        upcoming = wheel.next_expiration()
        deadlines = [entry.deadline for entry in entries if entry.pending]
        assert len(deadlines) == len(wheel)
        assert (upcoming is None) == (not deadlines)
        if upcoming is not None:
            assert upcoming <= max(wheel.now, -(-min(deadlines) // tick) * tick)
