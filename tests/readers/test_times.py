"""Written times are converted to integers exactly, or are rejected with a reason."""

import math
import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiowheel.readers import LATEST_TIME, TimeFormat, Unit, duration_in_unit, time_parser

pytestmark = pytest.mark.one_build


@pytest.mark.parametrize(
    ("written", "unit", "text", "expected"),
    [
        (TimeFormat.EPOCH, Unit.S, "0", 0),
        (TimeFormat.EPOCH, Unit.NS, "1674981729479000001", 1674981729479000001),
        (TimeFormat.DECIMAL, Unit.NS, "1674981729.479000001", 1674981729479000001),
        (TimeFormat.DECIMAL, Unit.MS, "1.5", 1500),
        (TimeFormat.DECIMAL, Unit.S, "7.000", 7),
        (TimeFormat.ISO8601, Unit.NS, "2023-01-29T10:06:03.361647039Z", 1674986763361647039),
        (TimeFormat.ISO8601, Unit.NS, "2023-11-16 18:15:46.6805900", 1700158546680590000),
        (TimeFormat.ISO8601, Unit.S, "1970-01-01T02:00:00+02:00", 0),
        (TimeFormat.ISO8601, Unit.MS, "1970-01-01t00:00:01,25z".upper(), 1250),
        (TimeFormat.CLF, Unit.S, "10/Oct/2000:13:55:36 -0700", 971211336),
        (TimeFormat.CLF, Unit.MS, "[01/Jan/1970:01:00:00 +0100]", 0),
    ],
)
def test_a_written_time_is_converted_exactly(
    written: TimeFormat, unit: Unit, text: str, expected: int
) -> None:
    """No digit is lost, beyond 2**53 and below a microsecond."""
    assert time_parser(written, unit)(text) == expected


# The second text is that of Python 3.14.
NO_SUCH_DAY = "day is out of range|day 3[01] must be in range"


@pytest.mark.parametrize(
    ("written", "unit", "text", "reason"),
    [
        (TimeFormat.EPOCH, Unit.S, "", "not a whole number >= 0"),
        (TimeFormat.EPOCH, Unit.S, "-1", "not a whole number >= 0"),
        (TimeFormat.EPOCH, Unit.S, "+1", "not a whole number >= 0"),
        (TimeFormat.EPOCH, Unit.S, "1.0", "not a whole number >= 0"),
        (TimeFormat.EPOCH, Unit.S, "1_000", "not a whole number >= 0"),
        (TimeFormat.EPOCH, Unit.S, " 1", "not a whole number >= 0"),
        (TimeFormat.EPOCH, Unit.S, "\u0661", "not a whole number >= 0"),
        (TimeFormat.EPOCH, Unit.S, "9" * 5000, "not a whole number >= 0"),
        (TimeFormat.DECIMAL, Unit.S, "1.5", "not a whole number of s"),
        (TimeFormat.DECIMAL, Unit.S, "-1.0", "not a decimal number"),
        (TimeFormat.DECIMAL, Unit.S, "1e3", "not a decimal number"),
        (TimeFormat.ISO8601, Unit.US, "2023-01-29T10:06:03.3616470Z0", "not an ISO 8601"),
        (TimeFormat.ISO8601, Unit.US, "2023-01-29T10:06:03.361647039Z", "not a whole number of us"),
        (TimeFormat.ISO8601, Unit.S, "2023-02-30T00:00:00Z", NO_SUCH_DAY),
        (TimeFormat.ISO8601, Unit.S, "1969-12-31T23:59:59Z", "before 1970"),
        (TimeFormat.CLF, Unit.S, "10/Okt/2000:13:55:36 -0700", "not like 10/Oct/2000"),
        (TimeFormat.CLF, Unit.S, "31/Feb/2000:13:55:36 -0700", NO_SUCH_DAY),
    ],
)
def test_a_bad_time_is_refused_with_its_reason(
    written: TimeFormat, unit: Unit, text: str, reason: str
) -> None:
    """No time is rounded, guessed or wrapped."""
    with pytest.raises(ValueError, match=reason):
        time_parser(written, unit)(text)


@given(st.integers(0, LATEST_TIME))
def test_decimal_times_keep_every_nanosecond(nanoseconds: int) -> None:
    """Seconds with nine digits and whole nanoseconds are the same time."""
    text = f"{nanoseconds // 10**9}.{nanoseconds % 10**9:09}"

    assert time_parser(TimeFormat.DECIMAL, Unit.NS)(text) == nanoseconds


@pytest.mark.parametrize(
    ("seconds", "unit", "expected"),
    [(30, Unit.S, 30), (0.5, Unit.MS, 500), (0.1, Unit.NS, 100_000_000), (1e-9, Unit.NS, 1)],
)
def test_a_timeout_is_converted_as_it_was_written(
    seconds: float, unit: Unit, expected: int
) -> None:
    """0.1 means one tenth, although no float is exactly one tenth."""
    assert duration_in_unit(seconds, unit) == expected


def test_a_timeout_may_be_a_number_of_numpy() -> None:
    """Its repr is `np.float64(0.1)`, its text is that of the float."""
    np = pytest.importorskip("numpy")

    assert duration_in_unit(np.float64(0.1), Unit.NS) == 100_000_000
    assert duration_in_unit(np.int64(30), Unit.S) == 30


def test_a_timeout_may_be_a_fraction() -> None:
    """A third of a second is no whole number of any unit."""
    assert duration_in_unit(Fraction(1, 4), Unit.MS) == 250
    with pytest.raises(ValueError, match=r"whole number of ns, got 0\.333333 s"):
        duration_in_unit(Fraction(1, 3), Unit.NS)


@pytest.mark.parametrize("value", [True, "3", None, 1j])
def test_what_is_no_number_is_no_timeout(value: Any) -> None:
    """True would count as one second."""
    text = re.escape(f"timeout must be a number of seconds above 0, got {value!r}")
    with pytest.raises(TypeError, match=text):
        duration_in_unit(value, Unit.S)


@pytest.mark.parametrize(
    ("seconds", "unit", "reason"),
    [
        (0.5, Unit.S, "whole number of s, got 0.5 s: choose a finer --unit"),
        (0, Unit.S, "above 0, got 0"),
        (-1.5, Unit.MS, r"above 0, got -1\.5"),
        (math.nan, Unit.S, "above 0, got nan"),
        (math.inf, Unit.S, "above 0, got inf"),
        (1e18, Unit.NS, "at most"),
    ],
)
def test_a_timeout_out_of_range_is_refused(seconds: float, unit: Unit, reason: str) -> None:
    """The error has the value and the legal range."""
    with pytest.raises(ValueError, match=reason):
        duration_in_unit(seconds, unit)


@pytest.mark.parametrize("written", TimeFormat)
def test_formats_and_units_may_be_given_by_name(written: TimeFormat) -> None:
    """The names are those of the command line."""
    text = {
        TimeFormat.EPOCH: "1000",
        TimeFormat.DECIMAL: "1",
        TimeFormat.ISO8601: "1970-01-01T00:00:01Z",
        TimeFormat.CLF: "01/Jan/1970:00:00:01 +0000",
    }[written]

    assert time_parser(written.value, "ms")(text) == 1_000
    assert duration_in_unit(1, "ms") == 1_000


def test_another_name_is_refused_at_the_call() -> None:
    """The error lists the legal names."""
    formats, units = "'epoch', 'decimal', 'iso8601', 'clf'", "'s', 'ms', 'us', 'ns'"
    with pytest.raises(ValueError, match=f"written must be one of {formats}, got 'unix'"):
        time_parser("unix", "s")
    with pytest.raises(ValueError, match=f"unit must be one of {units}, got 'seconds'"):
        time_parser("iso8601", "seconds")
    with pytest.raises(ValueError, match=f"unit must be one of {units}, got 'seconds'"):
        duration_in_unit(30, "seconds")
