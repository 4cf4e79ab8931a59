"""Conversion of seconds to nanoseconds and back: every rounding of the package."""

import enum
import math
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiowheel._units import (
    FOREVER,
    checked_seconds,
    clock_to_ns,
    delay_to_ns,
    ns_to_alarm,
    ns_to_seconds,
)


class Delay(enum.IntEnum):
    """Delays by name, as applications define them."""

    LONG = 30


@pytest.mark.parametrize(
    ("given_seconds", "ns"),
    [
        (0, 0),
        (1, 10**9),
        (-1, -(10**9)),
        (0.1, 10**8),
        (0.1 + 0.2, 3 * 10**8),
        (1e-9, 1),
        (4e-10, 0),
        (-1.5, -1_500_000_000),
        (Delay.LONG, 30 * 10**9),
        (timedelta(microseconds=1), 1000),
        (timedelta(days=-1), -86_400 * 10**9),
        (timedelta.max, FOREVER),
        (Decimal("0.001"), 10**6),
        (Fraction(1, 8), 125_000_000),
        (np.float64(0.5), 500_000_000),
        (np.float32(0.5), 500_000_000),
        (np.int64(3), 3 * 10**9),
        (math.inf, FOREVER),
        (-math.inf, -FOREVER),
        (1e300, FOREVER),
        (10**400, FOREVER),
        (-(10**400), -FOREVER),
        (Decimal("1e400"), FOREVER),
        (Fraction(10**400), FOREVER),
        (2**63, FOREVER),
    ],
    ids=repr,
)
def test_numbers_of_every_kind_are_seconds(given_seconds: object, ns: int) -> None:
    """Seconds are rounded to the nearest nanosecond and never wrapped."""
    assert delay_to_ns("delay", given_seconds) == ns


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        "1",
        b"1",
        1j,
        [1.0],
        object(),
        np.True_,
        np.timedelta64(5, "ns"),
        np.timedelta64(5, "s"),
        np.datetime64(5, "ns"),
        np.str_("5"),
        np.bytes_(b"5"),
        np.complex128(5),
    ],
    ids=repr,
)
def test_a_value_that_is_not_a_number_of_seconds_is_refused(value: Any) -> None:
    """The text names the argument. Without the check, durations of numpy would pass as numbers."""
    with pytest.raises(TypeError, match="delay must be a number of seconds or a timedelta, got"):
        delay_to_ns("delay", value)


@pytest.mark.parametrize("value", [math.nan, Decimal("NaN"), np.float32("nan")], ids=repr)
def test_nan_is_refused(value: Any) -> None:
    """NaN is neither early nor late."""
    with pytest.raises(ValueError, match=r"delay must be a number .* other than NaN, got nan"):
        delay_to_ns("delay", value)


@given(st.integers(-(2**50), 2**50))
def test_nanoseconds_survive_the_way_through_seconds(ns: int) -> None:
    """A float can represent thirteen days of nanoseconds exactly enough for the round trip."""
    assert delay_to_ns("when", ns_to_seconds(ns)) == ns


def test_forever_is_inf() -> None:
    """Infinity converts both ways."""
    assert ns_to_seconds(FOREVER) == math.inf
    assert delay_to_ns("when", ns_to_seconds(FOREVER)) == FOREVER


def test_seconds_of_a_range_are_checked() -> None:
    """Both ends are legal; the error text has the range."""
    assert checked_seconds("lease", timedelta(seconds=1), 1, 86_400) == 1.0
    assert checked_seconds("lease", 86_400, 1, 86_400) == 86_400.0

    for wrong in (0.5, 86_401, math.inf, -1):
        with pytest.raises(ValueError, match=r"^lease must be from 1 to 86400 seconds, got "):
            checked_seconds("lease", wrong, 1, 86_400)


@given(st.floats(0.0, 2e9))
def test_clocks_and_deadlines_round_alike(seconds: float) -> None:
    """A deadline equal to the clock's reading is due at that reading."""
    assert clock_to_ns(seconds) == delay_to_ns("when", seconds)
    assert clock_to_ns(-seconds) == delay_to_ns("when", -seconds)


@given(st.floats(0.0, 2e9), st.floats(0.0, 2e9))
def test_rounding_keeps_the_order(one: float, other: float) -> None:
    """A later clock never gives an earlier result."""
    if one <= other:
        assert clock_to_ns(one) <= clock_to_ns(other)


@given(st.integers(0, 2**61 - 2))
def test_an_alarm_never_rings_early(ns: int) -> None:
    """The alarm's float reads back as at or after the deadline, at any uptime."""
    assert clock_to_ns(ns_to_alarm(ns)) >= ns
