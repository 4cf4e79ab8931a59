"""Idle detection in virtual time, compared with its definition."""

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiowheel.recipes._idle_trace import idle_events

ROWS = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from(["", "a", "b", "é", "\uffff", "\U00010000"])),
    max_size=60,
)


def by_definition(rows: list[tuple[int, str]], timeout: int) -> list[tuple[int, str]]:
    """Return an event for each touch without another one within the timeout, sorted."""
    touches: dict[str, list[int]] = {}
    for time, key in sorted(rows):
        touches.setdefault(key, []).append(time)
    events = {
        (time + timeout, key)
        for key, times in touches.items()
        for time in times
        if bisect_right(times, time + timeout) == bisect_right(times, time)
    }
    return sorted(events, key=lambda event: (event[0], event[1].encode()))


@given(ROWS, st.integers(1, 20), st.sampled_from([0, 1, 10**9, 1_674_981_729_479_000_000]))
def test_the_wheel_finds_what_the_definition_says(
    rows: list[tuple[int, str]], timeout: int, origin: int
) -> None:
    """The events are equal for ties, repeats, many keys at one instant and any origin."""
    shifted = [(origin + time, key) for time, key in rows]

    found = list(idle_events(sorted(shifted), timeout))

    assert found == by_definition(shifted, timeout)


@given(ROWS, st.integers(1, 20), st.integers(1_000, 10**12))
def test_the_scale_of_time_changes_nothing(
    rows: list[tuple[int, str]], timeout: int, scale: int
) -> None:
    """Seconds and nanoseconds give the same events, also across long gaps."""
    scaled = [(time * scale, key) for time, key in sorted(rows)]

    found = list(idle_events(scaled, timeout * scale))

    assert found == [(fire * scale, key) for fire, key in by_definition(rows, timeout)]


def test_a_touch_at_the_deadline_keeps_the_key_alive() -> None:
    """A key is idle only if it has had no touch for more than the timeout."""
    assert list(idle_events([(0, "k"), (30, "k")], 30)) == [(60, "k")]
    assert list(idle_events([(0, "k"), (31, "k")], 30)) == [(30, "k"), (61, "k")]


def test_no_rows_no_events() -> None:
    """An empty trace has no events."""
    assert list(idle_events([], 30)) == []


def test_rows_out_of_order_are_refused() -> None:
    """Rows out of order would give wrong events."""
    with pytest.raises(ValueError, match="by time, got 9 after 10"):
        list(idle_events([(10, "k"), (9, "k")], 30))
