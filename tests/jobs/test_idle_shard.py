"""The shard engine: whatever the order and the cuts, the events of the trace."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from aiowheel.errors import AiowheelError
from aiowheel.jobs.idle.shard import STATE_VERSION, IdleShard, condensed
from aiowheel.recipes._idle_trace import idle_events
from aiowheel.rules import NEVER

TIMEOUT = 10
touches = st.tuples(st.integers(0, 120), st.sampled_from("abc"))


@given(
    trace=st.lists(touches, max_size=60),
    lateness=st.integers(0, 50),
    cuts=st.lists(st.integers(0, 60), max_size=8),
    data=st.data(),
)
def test_cuts_and_disorder_change_nothing(
    trace: list[tuple[int, str]], lateness: int, cuts: list[int], data: st.DataObject
) -> None:
    """Fed in stretches, no row later than the lateness, the state written down in between."""
    late = data.draw(st.lists(st.integers(0, lateness), min_size=60, max_size=60))
    arriving = [
        row for _, row in sorted((row[0] + by, row) for by, row in zip(late, trace, strict=False))
    ]
    edges = [0, *sorted(cuts), len(arriving)]
    found: list[tuple[int, str]] = []
    state, newest = IdleShard(TIMEOUT).dump(), 0

    for begin, end in pairwise(edges):
        shard = IdleShard.load(TIMEOUT, STATE_VERSION, state)
        rows = arriving[begin:end]
        shard.feed(rows)
        newest = max([newest, *(t for t, _ in rows)])
        found += shard.settle(newest - lateness - 1)
        state = shard.dump()
    shard = IdleShard.load(TIMEOUT, STATE_VERSION, state)
    found += shard.settle(NEVER - 1)

    assert found == list(idle_events(sorted(trace), TIMEOUT))
    assert len(shard) == 0


def test_what_is_kept_does_not_grow_with_the_rows() -> None:
    """A key touched all the time costs two touches a timeout, however often it is touched."""
    shard = IdleShard(TIMEOUT)

    for now in range(0, 10_000, 10):
        shard.feed((t, "k") for t in range(now, now + 10))
        assert shard.settle(now - 50) == []
        assert len(shard) <= 2 * (60 // TIMEOUT) + 2

    assert shard.settle(NEVER - 1) == [(10_009, "k")]


@given(trace=st.lists(touches, max_size=60), more=st.lists(touches, max_size=10))
def test_dropped_touches_are_not_missed(
    trace: list[tuple[int, str]], more: list[tuple[int, str]]
) -> None:
    """Whatever comes later, the events are those of all touches."""
    kept = condensed(sorted(trace), TIMEOUT)

    assert set(kept) <= set(trace)
    assert list(idle_events(sorted(kept + more), TIMEOUT)) == list(
        idle_events(sorted(trace + more), TIMEOUT)
    )


def test_a_state_of_another_version_is_refused() -> None:
    """Guessing would lose keys in silence."""
    state = IdleShard(TIMEOUT).dump()

    with pytest.raises(AiowheelError, match="state of version 99, this release reads 2"):
        IdleShard.load(TIMEOUT, 99, state)
