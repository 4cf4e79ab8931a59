"""The shard engine finds the events of the trace for any order and any batches."""

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
def test_batches_and_disorder_do_not_change_the_events(
    trace: list[tuple[int, str]], lateness: int, cuts: list[int], few: int, data: st.DataObject
) -> None:
    """Rows are fed in batches, disordered up to the lateness, with the state saved in between."""
    with patch.object(idle_shard, "_FEW", few):  # so that small traces have a base as well
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
    """Return the state after a micro-batch, as stored by a state store."""
    changed = {**state, **shard.changes()}
    return {name: value for name, value in changed.items() if value is not None}


def test_only_touches_that_changed_are_written() -> None:
    """A shard of many open keys writes the touched ones, and all when a quarter has changed."""
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
    assert set(fired.changes()) == {"recent"}  # the new frontier
    state = written(state, fired)
    assert IdleShard.load(10_000, state).settle(10_004) == []

    busy = IdleShard.load(10_000, state)
    busy.feed((10_005, f"k{n}") for n in range(5, 1_500))  # exactly in time for k5
    events = busy.settle(11_600)
    assert len(events) == 101  # k1500 and the following keys
    assert {name: value is None for name, value in busy.changes().items()} == {
        "touches": False,
        "recent": True,
    }
    state = written(state, busy)
    rest = IdleShard.load(10_000, state).settle(NEVER - 1)
    assert len(rest) == 5_000 - 4 - 101 + 1


def test_the_state_does_not_grow_with_the_rows() -> None:
    """A key that is touched all the time keeps two touches per timeout, for any number of rows."""
    shard = IdleShard(TIMEOUT)

    for now in range(0, 10_000, 10):
        shard.feed((t, "k") for t in range(now, now + 10))
        assert shard.settle(now - 50) == []
        assert len(shard) <= 2 * (60 // TIMEOUT) + 2

    assert shard.settle(NEVER - 1) == [(10_009, "k")]


@given(trace=st.lists(touches, max_size=60), more=st.lists(touches, max_size=10))
def test_condensing_does_not_change_the_events(
    trace: list[tuple[int, str]], more: list[tuple[int, str]]
) -> None:
    """For any later touches, the events are those of all touches."""
    kept = condensed(sorted(trace), TIMEOUT)

    assert set(kept) <= set(trace)
    assert list(idle_events(sorted(kept + more), TIMEOUT)) == list(
        idle_events(sorted(trace + more), TIMEOUT)
    )


def test_a_state_of_another_version_is_refused() -> None:
    """Reading another version could lose keys silently."""
    shard = IdleShard(TIMEOUT)
    shard.feed([(1, "a")])
    ((name, (_, *value)),) = written({}, shard).items()

    with pytest.raises(AiowheelError, match="state of version 99, this release reads 3"):
        IdleShard.load(TIMEOUT, {name: (99, *value)})
