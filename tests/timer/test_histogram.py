"""The lateness histogram: fixed memory and bounded error."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiowheel import Histogram

DURATIONS = st.integers(0, 2**62 - 1)


def filled(durations: list[int]) -> Histogram:
    """Return a histogram of durations in nanoseconds."""
    histogram = Histogram()
    for ns in durations:
        histogram.record(ns)
    return histogram


def test_an_empty_histogram_is_zero_everywhere() -> None:
    """There is no division by zero."""
    empty = Histogram()

    assert (empty.count, empty.maximum, empty.mean, empty.quantile(0.99)) == (0, 0.0, 0.0, 0.0)
    assert empty.total == 0.0
    assert list(empty.buckets()) == []


@given(DURATIONS)
def test_one_duration_is_every_quantile(ns: int) -> None:
    """The maximum is exact, and no quantile is above it."""
    histogram = filled([ns])

    assert histogram.maximum == ns / 1e9
    assert {histogram.quantile(q) for q in (0.01, 0.5, 1.0)} == {ns / 1e9}


@given(st.lists(DURATIONS, min_size=1), st.floats(0.01, 1.0))
def test_a_quantile_is_at_most_a_sixteenth_above_the_true_one(
    durations: list[int], q: float
) -> None:
    """The estimate is never below the true quantile either."""
    ordered = sorted(durations)
    rank = next(rank for rank in range(len(ordered)) if rank + 1 >= q * len(ordered))
    true = ordered[rank] / 1e9

    assert true <= filled(durations).quantile(q) <= true * 1.0625


def test_the_sum_never_shrinks() -> None:
    """Zeros leave the sum unchanged to the bit: a monitor takes a smaller sum for a reset."""
    histogram = filled([300_000] * 10)
    sums = [histogram.total]
    for _ in range(100):
        histogram.record(0)
        sums.append(histogram.total)

    assert set(sums) == {0.003}


def test_quantiles_rise() -> None:
    """For 1 to 10,000 microseconds, p50, p99 and the maximum have the expected values."""
    histogram = filled([us * 1000 for us in range(1, 10_001)])

    assert histogram.quantile(0.5) == pytest.approx(0.005, rel=0.0625)
    assert histogram.quantile(0.99) == pytest.approx(0.0099, rel=0.0625)
    assert histogram.quantile(1.0) == histogram.maximum == 0.01
    assert histogram.mean == pytest.approx(0.005_000_5)


def test_counts_add_up() -> None:
    """Every duration is in exactly one bucket and at or below its edge."""
    rng = random.Random(1)
    durations = [int(2 ** rng.uniform(0, 61)) for _ in range(5000)]
    histogram = filled(durations)

    edges = list(histogram.buckets())

    assert sum(count for _, count in edges) == histogram.count == 5000
    assert [upper for upper, _ in edges] == sorted(upper for upper, _ in edges)
    seen = 0
    for upper, count in edges:
        seen += count
        assert sum(ns / 1e9 <= upper for ns in durations) == seen


def test_a_negative_duration_counts_as_zero() -> None:
    """The minimum of lateness is 0."""
    histogram = filled([-5])

    assert (histogram.count, histogram.maximum, histogram.mean) == (1, 0.0, 0.0)


def test_the_mean_of_enormous_durations_does_not_wrap() -> None:
    """Three durations of a hundred years are more nanoseconds than 64 bits hold."""
    century = 100 * 365 * 86_400

    assert filled([century * 10**9] * 3).mean == pytest.approx(century)


def test_the_sum_is_exact_to_the_nanosecond() -> None:
    """The sum of durations beyond 64 bits is the sum of the integers."""
    assert filled([]).total_ns == 0
    assert filled([1, 2, 2**60]).total_ns == 2**60 + 3
    assert filled([2**61 + 1, 1]).total_ns == 2**61 + 2
    assert filled([2**62 - 1] * 5 + [1, 2**61, 3]).total_ns == 5 * (2**62 - 1) + 2**61 + 4
    assert filled([2**62 - 1] * 5).copy().total_ns == 5 * (2**62 - 1)


@pytest.mark.parametrize(
    ("ns", "edge"),
    [
        *((ns, ns) for ns in range(32)),
        (32, 33),
        (33, 33),
        (34, 35),
        (62, 63),
        (63, 63),
        (64, 67),
        (67, 67),
        (68, 71),
        (1000, 1023),
        (2**40, 2**40 + 2**36 - 1),
        (2**62 - 1, 2**62 - 1),
    ],
)
def test_each_octave_above_16_ns_has_16_buckets(ns: int, edge: int) -> None:
    """The upper edge of a bucket is the longest duration that falls into it."""
    assert list(filled([ns]).buckets()) == [(edge / 1e9, 1)]


@pytest.mark.parametrize("q", [-0.01, 1.01, float("nan")])
def test_a_quantile_out_of_range_is_refused(q: float) -> None:
    """The error names the value and the range."""
    with pytest.raises(ValueError, match="q must be from 0 to 1, got"):
        Histogram().quantile(q)


@pytest.mark.parametrize("q", [None, True, "0.5"])
def test_a_quantile_that_is_no_number_is_refused(q: Any) -> None:
    """None, booleans and strings are no shares."""
    with pytest.raises(TypeError, match="q must be a number from 0 to 1, got"):
        Histogram().quantile(q)


def test_the_quantile_of_0_is_the_shortest_duration() -> None:
    """It is 0 only if the histogram is empty or has a duration of 0."""
    assert filled([10, 20, 30]).quantile(0) == 10 / 1e9


def test_repr_shows_count_median_and_maximum() -> None:
    """The seconds have six decimals."""
    assert repr(filled([1000] * 98 + [16_383_000, 80_000_000])) == (
        "<Histogram count=100 p50=0.000001 p99=0.016777 max=0.080000>"
    )


def test_a_copy_no_longer_changes() -> None:
    """A snapshot of statistics does not change."""
    histogram = filled([1000])
    copy = histogram.copy()

    histogram.record(5000)

    assert (copy.count, copy.maximum_ns) == (1, 1000)
    assert (histogram.count, histogram.maximum_ns) == (2, 5000)
