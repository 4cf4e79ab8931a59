"""The order of a pass that is taken in slices: entries fire tick by tick, as from a heap."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiowheel.wheel import TimerEntry, TimingWheel
from aiowheel.wheel._bucket import Bucket
from aiowheel.wheel._wheel import LIMIT

#: What happens between two slices: an action, an index and a distance in time.
Action = tuple[str, int, int]

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["arm", "arm", "move", "cancel", "pop", "pop", "open"]),
        st.integers(0, 30),
        st.one_of(st.integers(-12, 12), st.integers(0, 90)),
    ),
    max_size=40,
)


def test_a_bucket_that_has_not_cascaded_stays_in_order_between_slices() -> None:
    """The rest of a coarse bucket is not overdue: it is filed again, tick by tick."""
    wheel = TimingWheel(1, 4)
    for deadline in (4, 7, 5):
        wheel.schedule(deadline, deadline)

    order: list[object] = []
    wheel.open_pass(10)
    while wheel.pass_is_open():
        entry = wheel.pop_due()
        if entry is not None:
            order.append(entry.payload)
        wheel.open_pass(10)

    assert order == [4, 5, 7]


@pytest.mark.parametrize(("wheel_size", "first"), [(4, 4), (2, 8), (256, 65536)])
def test_an_entry_armed_while_a_bucket_cascades_comes_behind_those_of_its_tick(
    wheel_size: int, first: int
) -> None:
    """They wait to be filed again; so does the new one. Its own cascade is counted."""
    wheel = TimingWheel(10, wheel_size)
    for tick in (first, first + 1, first + 1):
        wheel.schedule(tick * 10)
    armed = wheel.pending()
    wheel.open_pass(first * 10)

    order = [wheel.pop_due()]
    between = wheel.schedule((first + 1) * 10 - 3, "armed")
    moved = wheel.schedule((first + 9) * 10, "moved")
    wheel.move(moved, (first + 1) * 10)
    beyond = wheel.schedule((first + 10**6) * 10, "beyond")
    wheel.check_invariants()
    while wheel.pass_is_open():
        order.append(wheel.pop_due())
    wheel.check_invariants()

    assert order == [armed[0], None]
    assert wheel.next_expiration() == (first + 1) * 10
    assert wheel.advance((first + 1) * 10) == [*armed[1:], between, moved]
    assert wheel.pending() == [beyond]


def test_an_overdue_entry_waits_for_the_ticks_that_were_due_when_it_was_armed() -> None:
    """It comes before the later ticks, which came due after it."""
    wheel = TimingWheel()
    for deadline in (1, 2, 10, 11, 30):
        wheel.schedule(deadline, deadline)
    wheel.open_pass(10)
    first = wheel.pop_due()
    wheel.schedule(1, "armed at 10")

    order: list[object] = []
    for now in (20, 30):
        wheel.open_pass(now)
        entry = wheel.pop_due()
        order.append(entry and entry.payload)
        wheel.schedule(0, f"armed at {now}")
        wheel.check_invariants()
        assert wheel.next_expiration() == now
    order += [entry.payload for entry in wheel.advance(40)]

    assert first is not None
    assert order == [2, 10, "armed at 10", 11, "armed at 20", 30, "armed at 30"]


def test_overdue_entries_that_are_sorted_come_among_the_others_by_deadline() -> None:
    """As from a heap, for a driver that promises this; entries armed in the pass wait for it."""
    wheel = TimingWheel()
    for deadline in (2, 5, 10):
        wheel.schedule(deadline, deadline)
    wheel.observe_now(20)
    for deadline in (7, 1, 20):
        wheel.schedule(deadline, deadline)

    order: list[object] = []
    for _ in range(6):
        if not wheel.pass_is_open():
            wheel.sort_overdue()
        wheel.open_pass(20)
        entry = wheel.pop_due()
        order.append(entry and entry.payload)
        if len(order) == 1:
            wheel.schedule(0, "armed in the pass")
    order += [entry.payload for entry in wheel.advance(20)]

    assert order == [1, 2, 5, 7, 10, 20, "armed in the pass"]


@pytest.mark.parametrize("wheel_size", [2, 256])
def test_overdue_entries_that_are_sorted_come_in_their_order_within_a_tick(wheel_size: int) -> None:
    """The time of a tick is not the time of its entries."""
    wheel = TimingWheel(tick=10, wheel_size=wheel_size)
    for deadline in (92, 98, 97, 112):
        wheel.schedule(deadline, f"{deadline} first")
    wheel.observe_now(95)
    wheel.schedule(92, "92 then")
    wheel.schedule(94, "94 then")
    wheel.schedule(88, "88 then")
    wheel.schedule(99, "99 last")  # behind the others of its tick, because they were armed before

    wheel.sort_overdue()
    wheel.observe_now(150)
    entries = wheel.advance(150)

    assert [entry.payload for entry in entries] == [
        *("88 then", "92 first", "92 then", "94 then", "98 first", "97 first", "99 last"),
        "112 first",
    ]
    wheel.check_invariants()


def test_overdue_entries_at_the_end_of_time_can_be_sorted() -> None:
    """Their tick would end after it."""
    wheel = TimingWheel(tick=1000)
    wheel.observe_now(LIMIT)
    entries = [wheel.schedule(deadline) for deadline in (LIMIT, LIMIT - 1)]

    wheel.sort_overdue()

    wheel.check_invariants()
    assert wheel.advance(LIMIT) == entries[::-1]


def test_a_late_entry_can_be_moved_or_cancelled_before_the_pass_reaches_it() -> None:
    """The pass takes it only after the buckets before it."""
    wheel = TimingWheel(wheel_size=4)
    for deadline in (1, 2, 15):
        wheel.schedule(deadline, deadline)
    wheel.observe_now(3)
    cancelled, moved, stays = (wheel.schedule(0, name) for name in ("cancelled", "moved", "stays"))
    wheel.open_pass(10)
    assert wheel.pop_due() is not None

    assert cancelled.cancel()
    wheel.move(moved, 12)
    wheel.check_invariants()

    assert [entry.payload for entry in wheel.advance(20)] == [2, "stays", "moved", 15]
    assert stays.payload == "stays"


def test_an_overdue_entry_moved_later_stays_in_order_between_slices() -> None:
    """The next slices must not take its new deadline for one that has passed."""
    wheel = TimingWheel(1, 4)
    first, moved = wheel.schedule(0, "first"), wheel.schedule(0, "moved")
    wheel.schedule(12, "between")
    wheel.open_pass(10)
    assert wheel.pop_due() is first

    wheel.move(moved, 15)
    wheel.open_pass(20)
    wheel.open_pass(30)

    order: list[object] = []
    while wheel.pass_is_open():
        entry = wheel.pop_due()
        if entry is not None:
            order.append(entry.payload)
    assert order == ["between", "moved"]


class Oracle:
    """The order that the wheel promises, from a plain search of all entries.

    An overdue entry is due when it is armed: after the ticks up to that time, in the order of
    arming, and before the later ticks. It waits for the next pass, or until the pass is extended.
    """

    def __init__(self, tick: int) -> None:
        self.tick = tick
        self.now = 0
        self.end = 0  # the last tick of the pass
        self.current = 0  # the tick that is being fired
        self.sequence = 0
        self.ticks: dict[TimerEntry, tuple[int, int]] = {}  # (tick, sequence) of each other entry
        self.overdue: list[tuple[TimerEntry, int]] = []  # with the time of arming
        self.ready: list[tuple[TimerEntry, int]] = []  # overdue, and part of the open pass
        self.moved: set[TimerEntry] = set()  # these have no defined order within a tick

    def arm(self, entry: TimerEntry, deadline: int) -> None:
        """Add *entry*."""
        self.sequence += 1
        if deadline <= self.now:
            self.overdue.append((entry, self.now))
        else:
            self.ticks[entry] = (-(-deadline // self.tick), self.sequence)

    def remove(self, entry: TimerEntry) -> None:
        """Remove *entry*."""
        self.ticks.pop(entry, None)
        self.overdue = [item for item in self.overdue if item[0] is not entry]
        self.ready = [item for item in self.ready if item[0] is not entry]

    def open(self, now: int) -> None:
        """Open or extend the pass."""
        self.now = now
        self.end = now // self.tick
        self.ready += self.overdue
        self.overdue = []

    def check(self, entry: TimerEntry | None) -> None:
        """Assert that *entry* is the next one of the pass."""
        first = min(self.ticks.values(), default=(self.end + 1, 0))
        if not self.ready and first[0] > self.end:
            assert entry is None
            return
        assert entry is not None
        if self.ready and (first[0] > self.end or first[0] * self.tick > self.ready[0][1]):
            assert entry is self.ready[0][0]
        else:
            self.current = first[0]
            tick, sequence = self.ticks[entry]
            assert tick == self.current
            if entry not in self.moved:
                others = [
                    place
                    for other, (each, place) in self.ticks.items()
                    if each == tick and other not in self.moved
                ]
                assert sequence == min(others)
        self.remove(entry)


@pytest.mark.slow
@settings(max_examples=20 * settings().max_examples)
@given(st.sampled_from([1, 3, 10]), st.sampled_from([2, 3, 4, 8]), ACTIONS)
def test_slices_take_entries_in_the_order_of_a_heap(
    tick: int, wheel_size: int, actions: list[Action]
) -> None:
    """Entries are armed, moved and cancelled between slices, in the past and in the future."""
    wheel, oracle = TimingWheel(tick, wheel_size), Oracle(tick)
    entries: list[TimerEntry] = []
    for action, index, distance in [*actions, ("open", 0, 90), ("pop", 10**6, 0)]:
        pending = [entry for entry in entries if entry.pending]
        deadline = wheel.now + distance
        match action:
            case "arm":
                entries.append(wheel.schedule(deadline))
                oracle.arm(entries[-1], deadline)
            case "move" if pending:
                entry = pending[index % len(pending)]
                wheel.move(entry, deadline)
                oracle.remove(entry)
                oracle.arm(entry, deadline)
                oracle.moved.add(entry)
            case "cancel" if pending:
                entry = pending[index % len(pending)]
                entry.cancel()
                oracle.remove(entry)
            case "open":
                wheel.open_pass(wheel.now + abs(distance))
                oracle.open(wheel.now)
            case "pop":
                for _ in range(index + 1):
                    if not wheel.pass_is_open():
                        break
                    popped = wheel.pop_due()
                    oracle.check(popped)
                    assert popped is None or popped.deadline <= wheel.now
            case _:
                pass
        wheel.check_invariants()
    assert all(entry.deadline > wheel.now // tick * tick for entry in wheel.pending())


def test_an_entry_can_be_inserted_anywhere_in_a_bucket() -> None:
    """Also into one that never had an entry."""
    bucket = Bucket()
    first, second, third = (TimerEntry(deadline, None) for deadline in (1, 2, 3))

    bucket.insert(third, bucket.prev)
    bucket.insert(first, bucket)
    bucket.insert(second, first)

    assert list(bucket) == [first, second, third]
    assert (bucket.next, bucket.prev) == (first, third)
    bucket.unlink_all()
