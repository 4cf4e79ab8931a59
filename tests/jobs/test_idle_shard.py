"""The shard engine: whatever the order and the cuts, the events of the trace."""

from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from aiowheel.errors import AiowheelError
from aiowheel.jobs.idle import shard as idle_shard
from aiowheel.jobs.idle.shard import IdleShard, condensed
from aiowheel.recipes._idle_trace import idle_events
from aiowheel.rules import NEVER

pytestmark = pytest.mark.one_build

TIMEOUT = 10
touches = st.tuples(st.integers(0, 120), st.sampled_from("abc"))


@given(
    trace=st.lists(touches, max_size=60),
    lateness=st.integers(0, 50),
    cuts=st.lists(st.integers(0, 60), max_size=8),
    few=st.sampled_from([0, 3, 256]),
    data=st.data(),
)
def test_cuts_and_disorder_change_nothing(
    trace: list[tuple[int, str]], lateness: int, cuts: list[int], few: int, data: st.DataObject
) -> None:
    """Fed in stretches, no row later than the lateness, the state written down in between."""
    with patch.object(idle_shard, "_FEW", few):  # small traces have a base as well
        _cut_and_compare(trace, lateness, cuts, data)


def _cut_and_compare(
    trace: list[tuple[int, str]], lateness: int, cuts: list[int], data: st.DataObject
) -> None:
    late = data.draw(st.lists(st.integers(0, lateness), min_size=60, max_size=60))
    arriving = [
        row for _, row in sorted((row[0] + by, row) for by, row in zip(late, trace, strict=False))
    ]
    edges = [0, *sorted(cuts), len(arriving)]
    found: list[tuple[int, str]] = []
    state: dict[str, tuple[Any, ...]] = {}
    newest = 0

    for begin, end in pairwise(edges):
        shard = IdleShard.load(TIMEOUT, state)
        rows = arriving[begin:end]
        shard.feed(rows)
        newest = max([newest, *(t for t, _ in rows)])
        found += shard.settle(newest - lateness - 1)
        state = written(state, shard)
    shard = IdleShard.load(TIMEOUT, state)
    found += shard.settle(NEVER - 1)

    assert found == list(idle_events(sorted(trace), TIMEOUT))
    assert len(shard) == 0


def written(state: dict[str, tuple[Any, ...]], shard: IdleShard) -> dict[str, tuple[Any, ...]]:
    """The state after a micro-batch, as a store keeps it."""
    changed = {**state, **shard.changes()}
    return {name: value for name, value in changed.items() if value is not None}


def test_only_touches_that_changed_are_written() -> None:
    """A shard of many open keys writes the touched one, and itself when a quarter has changed."""
    shard = IdleShard(10_000)
    shard.feed((n, f"k{n}") for n in range(5_000))
    assert shard.settle(4_999) == []
    state = written({}, shard)
    assert set(state) == {"touches"}

    quiet = IdleShard.load(10_000, state)
    assert quiet.settle(5_500) == []
    assert quiet.changes() == {}
    assert quiet.next_fire() == 10_000

    touched = IdleShard.load(10_000, state)
    touched.feed([(6_000, "k3"), (6_001, "new")])
    assert touched.settle(6_001) == []
    assert set(touched.changes()) == {"recent"}
    state = written(state, touched)
    assert len(state["recent"][1]) < 1_000 < len(state["touches"][1])

    fired = IdleShard.load(10_000, state)
    assert [key for _, key in fired.settle(10_004)] == ["k0", "k1", "k2", "k4"]
    assert set(fired.changes()) == {"recent"}  # how far it is settled
    state = written(state, fired)
    assert IdleShard.load(10_000, state).settle(10_004) == []

    busy = IdleShard.load(10_000, state)
    busy.feed((10_005, f"k{n}") for n in range(5, 1_500))  # k5 just in time
    events = busy.settle(11_600)
    assert len(events) == 101  # k1500 and those after it
    assert {name: value is None for name, value in busy.changes().items()} == {
        "touches": False,
        "recent": True,
    }
    state = written(state, busy)
    rest = IdleShard.load(10_000, state).settle(NEVER - 1)
    assert len(rest) == 5_000 - 4 - 101 + 1


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
    shard = IdleShard(TIMEOUT)
    shard.feed([(1, "a")])
    ((name, (_, *value)),) = written({}, shard).items()

    with pytest.raises(AiowheelError, match="state of version 99, this release reads 3"):
        IdleShard.load(TIMEOUT, {name: (99, *value)})
