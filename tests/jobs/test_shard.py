"""The replay of a trace on a purgatory in virtual time, compared with brute force."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiowheel.jobs.operations.shard import LONGEST_TICK, Shard
from aiowheel.rules import NEVER, NO_VALUE, Ending, Event, Operation

pytestmark = [pytest.mark.one_build, pytest.mark.overdue]  # some deadlines precede the creation

END = NEVER - 1
KEYS = ["a", "b", "c", "é", "\U00010000", "￿"]


def brute_force(operations: list[Operation], events: list[Event], tick: int) -> set[Ending]:
    """Return the end of each operation by a linear search."""
    endings: set[Ending] = set()
    for row in operations:
        expires = (row.deadline + tick - 1) // tick * tick
        if row.deadline <= row.created:
            expires = row.created
        met: list[tuple[int, bytes]] = []
        for key, least in zip(row.keys, row.thresholds, strict=True):
            times = [
                event.time
                for event in events
                if event.key == key and event.value >= least and row.created <= event.time
                if row.deadline == NEVER or event.time < expires
            ]
            if times:
                met.append((min(times), key.encode()))
        if len(met) >= row.wanted:
            at, by = sorted(met)[row.wanted - 1]
            endings.add(Ending(row.id, "completed", by.decode(), at))
        elif row.deadline != NEVER:
            endings.add(Ending(row.id, "expired", None, expires))
    return endings


def replay(operations: list[Operation], events: list[Event], tick: int) -> list[Ending]:
    """Return the outcomes of one shard, settled once."""
    shard = Shard(tick)
    shard.feed(operations, events)
    return shard.settle(END)


@st.composite
def traces(draw: st.DrawFn) -> tuple[list[Operation], list[Event], int]:
    """Draw few instants and few keys, so that many rows coincide."""
    tick = draw(st.sampled_from([1, 3, 7, 10, 1_000]))
    time = st.integers(0, 60)
    value = st.sampled_from([NO_VALUE, 0, 1, 2])
    operations: list[Operation] = []
    for number in range(draw(st.integers(0, 12))):
        keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=5, unique=True))
        thresholds = draw(st.lists(value, min_size=len(keys), max_size=len(keys)))
        wanted = draw(st.integers(1, len(keys)))
        created = draw(time)
        deadline = draw(st.just(NEVER) | time | st.integers(created, created + 60))
        operations.append(
            Operation(f"{number}", tuple(keys), tuple(thresholds), wanted, created, deadline)
        )
    events = draw(st.lists(st.builds(Event, st.sampled_from(KEYS), time, value), max_size=30))
    return operations, events, tick


@given(traces())
def test_a_replay_follows_the_rules(
    trace: tuple[list[Operation], list[Event], int],
) -> None:
    """Ties, repeats, overdue deadlines and ticks without rows are included."""
    operations, events, tick = trace

    endings = replay(operations, events, tick)

    assert set(endings) == brute_force(operations, events, tick)
    assert len(endings) == len(set(endings))
    assert [ending.at for ending in endings] == sorted(ending.at for ending in endings)


@given(traces(), st.lists(st.integers(0, 70), max_size=6), st.randoms(use_true_random=False))
def test_dividing_a_trace_does_not_change_outcomes(
    trace: tuple[list[Operation], list[Event], int],
    frontiers: list[int],
    source: random.Random,
) -> None:
    """Rows are fed in any order, settled in steps, and moved to another shard in between."""
    operations, events, tick = trace
    whole = replay(operations, events, tick)
    rows: list[Operation | Event] = [*operations, *events]
    source.shuffle(rows)
    endings: list[Ending] = []

    shard = Shard(tick)
    for frontier in [*sorted(frontiers), END]:
        ahead = frontier + source.randrange(20)
        fed = [row for row in rows if _time(row) <= ahead]
        rows = [row for row in rows if _time(row) > ahead]
        shard.feed(
            [row for row in fed if isinstance(row, Operation)],
            [row for row in fed if isinstance(row, Event)],
        )
        endings += shard.settle(frontier)
        moved = Shard(tick, shard.frontier)
        moved.resume(shard.waiting())
        moved.feed(shard.operations, shard.events)
        assert len(moved) == len(shard)
        shard = moved

    assert set(endings) == set(whole)
    assert len(endings) == len(whole)


def _time(row: Operation | Event) -> int:
    return row.created if isinstance(row, Operation) else row.time


@pytest.mark.parametrize("tick", [1, 999, 1_000, 1_000_003])
def test_nanoseconds_of_years_stay_exact(tick: int) -> None:
    """Times exceed the range of a timer's clock and the precision of a float."""
    start = 1_674_981_729_479_000_001
    year = 365 * 86_400 * 1_000_000_000
    operations = [
        Operation("soon", ("k",), (NO_VALUE,), 1, start, start + 1),
        Operation("late", ("k",), (NO_VALUE,), 1, start, start + year + 7),
        Operation("met", ("m",), (NO_VALUE,), 1, start, start + 2 * year),
        Operation("never", ("k",), (NO_VALUE,), 1, start, NEVER),
    ]
    events = [Event("m", start + year + 13, NO_VALUE)]

    endings = replay(operations, events, tick)

    assert set(endings) == brute_force(operations, events, tick)
    assert len(endings) == 3


def test_a_deadline_may_lie_far_in_the_past() -> None:
    """A deadline of 0 among current nanoseconds, at the default tick of a trace."""
    now = 1_800_000_000_000_000_000
    overdue = Operation("o", ("a",), (NO_VALUE,), 1, now, 0)

    assert replay([overdue], [Event("a", now, 1)], 1) == [Ending("o", "expired", None, now)]


def test_an_event_does_not_complete_later_operations() -> None:
    """A purgatory keeps its counters; an event of a trace has no effect after its time."""
    operations = [Operation("x", ("k",), (5,), 1, 10, 20)]

    assert replay(operations, [Event("k", 9, 5)], 1) == [Ending("x", "expired", None, 20)]
    assert replay(operations, [Event("k", 10, 5)], 1) == [Ending("x", "completed", "k", 10)]


@pytest.mark.parametrize("tick", [0, -1, LONGEST_TICK + 1])
def test_a_tick_out_of_range_is_refused(tick: int) -> None:
    """The error has the legal range."""
    with pytest.raises(ValueError, match=f"from 1 to {LONGEST_TICK}, got {tick}"):
        Shard(tick)
