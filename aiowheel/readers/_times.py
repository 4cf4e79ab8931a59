"""Conversion of written times to integers of one unit, without rounding. Rank 4.

The conversion uses no float: nanoseconds since 1970 exceed 2**53.
"""

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from numbers import Real

from aiowheel._arguments import safe_repr
from aiowheel.readers._formats import TimeFormat, Unit, checked_member

TimeParser = Callable[[str], int]  # raises ValueError whose text is the reason of the rejection

#: The greatest accepted time and deadline: the range of the wheel (ns since 1970: year 2043).
LATEST_TIME = 2**61 - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_DECIMAL = re.compile(r"(\d{1,19})(?:\.(\d*))?", re.ASCII)
_ISO8601 = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d+))?(Z|z|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)
_CLF = re.compile(
    r"\[?(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)\]?", re.ASCII
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def time_parser(written: TimeFormat | str, unit: Unit | str) -> TimeParser:
    """Return the function that converts one written time to a whole number of *unit*.

    Both arguments may be names of the command line, such as ``"iso8601"`` and ``"ms"``.

    ``epoch`` times are such numbers already; ``decimal`` times are seconds with a fraction;
    ``iso8601`` times without a zone are UTC; ``clf`` is the Common Log Format, with or without
    brackets. The function raises ValueError if *unit* cannot hold the fraction of a time.

    Raises:
        TypeError: *written* or *unit* is no text.
        ValueError: *written* or *unit* is another text.
    """
    written = checked_member("written", written, TimeFormat)
    whole = checked_member("unit", unit, Unit)
    if written is TimeFormat.EPOCH:
        return parse_epoch
    parse = {
        TimeFormat.DECIMAL: _parse_decimal,
        TimeFormat.ISO8601: _parse_iso8601,
        TimeFormat.CLF: _parse_clf,
    }[written]

    def parse_time(text: str) -> int:
        seconds, fraction = parse(text)
        if seconds < 0:
            raise ValueError(f"time {text!r} lies before 1970")
        return _join(seconds, fraction, whole, text)

    return parse_time


def parse_epoch(text: str) -> int:
    """Parse a whole number >= 0; signs, blanks and underscores are not allowed.

    Raises:
        ValueError: *text* is not such a number.
    """
    # The length limit comes first because int() takes quadratic time for long numbers.
    if text.isdigit() and text.isascii() and len(text) <= 19:
        return int(text)
    raise ValueError(f"time {text[:40]!r} is not a whole number >= 0")


def duration_in_unit(seconds: float | Fraction | Decimal, unit: Unit | str) -> int:
    """Convert a duration to a whole number of *unit*, reading the float by its printed digits.

    Args:
        seconds: Above 0 and below the wheel's range; 0.1 means one tenth, not the binary number
            nearest to it.
        unit: The unit of the result, or its name.

    Raises:
        TypeError: *seconds* is no number, or *unit* is no text.
        ValueError: *seconds* is out of range or is no whole number of *unit*, or *unit* is no unit.
    """
    unit = checked_member("unit", unit, Unit)
    if isinstance(seconds, bool) or not isinstance(seconds, Real | Decimal):
        raise TypeError(f"timeout must be a number of seconds above 0, got {safe_repr(seconds)}")
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"timeout must be a number of seconds above 0, got {seconds}")
    exact = Fraction(str(seconds)) * unit.per_second  # numpy puts its name into the repr
    if exact.denominator != 1:
        raise ValueError(
            f"timeout must be a whole number of {unit}, got {float(seconds):g} s: "
            "choose a finer --unit"
        )
    if exact > LATEST_TIME:
        raise ValueError(f"timeout must be at most {LATEST_TIME} {unit}, got {float(seconds):g} s")
    return int(exact)


def _join(seconds: int, fraction: str, unit: Unit, text: str) -> int:
    digits = fraction.rstrip("0")
    if len(digits) > unit.digits:
        raise ValueError(f"time {text!r} is not a whole number of {unit}")
    return int(f"{seconds}{digits.ljust(unit.digits, '0')}")


def _parse_decimal(text: str) -> tuple[int, str]:
    match = _DECIMAL.fullmatch(text)
    if match is None:
        raise ValueError(f"time {text[:40]!r} is not a decimal number >= 0")
    return int(match[1]), match[2] or ""


def _parse_iso8601(text: str) -> tuple[int, str]:
    match = _ISO8601.fullmatch(text)
    if match is None:
        raise ValueError(f"time {text[:40]!r} is not an ISO 8601 date and time")
    day, clock, fraction, zone = match.groups()
    try:
        # The fraction is parsed apart: datetime keeps six digits and silently drops the rest.
        moment = datetime.fromisoformat(f"{day}T{clock}{(zone or 'Z').upper()}")
    except ValueError as error:
        raise ValueError(f"time {text!r}: {error}") from error
    return (moment - _EPOCH) // _SECOND, fraction or ""


def _parse_clf(text: str) -> tuple[int, str]:
    match = _CLF.fullmatch(text)
    if match is None or match[2] not in _MONTHS:  # strptime's month names depend on the locale
        raise ValueError(f"time {text[:40]!r} is not like 10/Oct/2000:13:55:36 -0700")
    day, month, year, hour, minute, second, sign, zone_hours, zone_minutes = match.groups()
    offset = timedelta(hours=int(zone_hours), minutes=int(zone_minutes))
    try:
        moment = datetime(
            int(year),
            _MONTHS.index(month) + 1,
            int(day),
            int(hour),
            int(minute),
            int(second),
            tzinfo=timezone(-offset if sign == "-" else offset),
        )
    except ValueError as error:
        raise ValueError(f"time {text!r}: {error}") from error
    return (moment - _EPOCH) // _SECOND, ""
