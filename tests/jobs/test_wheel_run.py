"""A wheel in virtual time, compared with a loop over all operations: no Spark."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiowheel.jobs.wheels.feed import Chunk, feed
from aiowheel.jobs.wheels.run import NEVER, WheelRun


class Load(NamedTuple):
    """Operations as (created, deadline, end), ascending by creation."""

    operations: list[tuple[int, int, int]]

    def chunks(self, size: int) -> list[Chunk]:
        """Divide the load into chunks of *size* operations."""
        rows = self.operations
        return [
            Chunk(
                *(np.array(column, np.int64) for column in zip(*rows[at : at + size], strict=True))
            )
            for at in range(0, len(rows), size)
        ]


@st.composite
def loads(draw: st.DrawFn) -> Load:
    """Draw a few operations whose times often coincide."""
    rows: list[tuple[int, int, int]] = []
    for created in sorted(draw(st.lists(st.integers(0, 60), min_size=1, max_size=30))):
        timeout = draw(st.integers(0, 40))
        wait = draw(st.one_of(st.integers(0, 60), st.just(NEVER)))
        rows.append((created, created + timeout, NEVER if wait == NEVER else created + wait))
    return Load(rows)


def turn(load: Load, tick: int, wheel_size: int, chunk: int = 1_000) -> WheelRun:
    """Drive a wheel through the load."""
    run = WheelRun(tick, wheel_size)
    last = feed([run], load.chunks(chunk), tick)
    assert last == load.operations[-1][0]
    return run


def counts(run: WheelRun) -> tuple[int, ...]:
    """Return all counts of a run."""
    return (
        run.completed,
        run.expired,
        run.inserts,
        run.cascaded,
        run.wake_ups,
        run.peak_pending,
        run.lateness.total_ns,
        run.lateness.maximum_ns,
        run.levels,
    )


def expiry(created: int, deadline: int, tick: int) -> int:
    """Return the first tick at or after the deadline; the creation time if it is overdue."""
    return created if deadline <= created else -(-deadline // tick) * tick


@given(loads(), st.integers(1, 12), st.integers(2, 6))
def test_operations_end_by_the_rules(load: Load, tick: int, wheel_size: int) -> None:
    """An operation completes if its condition is met before it expires, on a tick, never early."""
    run = turn(load, tick, wheel_size)

    expiries = [expiry(created, deadline, tick) for created, deadline, _ in load.operations]
    late = [
        at - deadline
        for at, (_, deadline, end) in zip(expiries, load.operations, strict=True)
        if end >= at
    ]
    assert run.expired == len(late)
    assert run.completed == len(load.operations) - len(late)
    assert run.lateness.total_ns == sum(late)
    assert run.lateness.maximum_ns == max(late, default=0)


@given(loads(), st.integers(1, 12), st.integers(2, 6), st.integers(1, 7))
def test_chunks_do_not_change_the_counts(
    load: Load, tick: int, wheel_size: int, chunk: int
) -> None:
    """Operations pending at the end of a chunk continue in the next one."""
    assert counts(turn(load, tick, wheel_size, chunk)) == counts(turn(load, tick, wheel_size))


@given(loads(), st.integers(1, 12), st.integers(2, 6))
def test_wheels_fed_together_are_independent(load: Load, tick: int, wheel_size: int) -> None:
    """Several wheels under one load have the counts of each alone."""
    one, other = WheelRun(tick, wheel_size), WheelRun(3, 5)
    feed([one, other], load.chunks(4), max(tick, 3))

    assert counts(one) == counts(turn(load, tick, wheel_size))
    assert counts(other) == counts(turn(load, 3, 5))


def test_rows_of_one_instant_have_an_order() -> None:
    """The timeout at 10 precedes the arrival, which precedes both completions."""
    load = Load([(0, 10, 10), (4, 30, 10), (10, 30, 10)])

    run = turn(load, tick=1, wheel_size=4)

    assert (run.completed, run.expired, run.peak_pending) == (2, 1, 2)


def test_only_pending_entries_wake_the_wheel() -> None:
    """Two operations of one tick need one wake-up, a cancelled one none."""
    load = Load([(0, 95, NEVER), (1, 99, NEVER), (2, 250, 40)])

    run = turn(load, tick=10, wheel_size=4)

    # Tick 10 is in the bucket of the second level that begins at tick 8.
    assert (run.wake_ups, run.cascaded, run.inserts, run.levels) == (2, 2, 5, 3)


@pytest.mark.parametrize(("tick", "wheel_size"), [(0, 4), (1, 1)])
def test_a_wheel_out_of_range_is_refused(tick: int, wheel_size: int) -> None:
    """The error is that of the wheel itself."""
    with pytest.raises(ValueError, match="must be from"):
        WheelRun(tick, wheel_size)
