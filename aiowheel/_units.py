"""Conversion of seconds to nanoseconds and back: the only file that rounds. Rank 0.

Inside the package, times are whole nanoseconds on the scale of the event loop's clock: 0.1 + 0.2
and 0.3 are one deadline, and a clock with 200 days of uptime still distinguishes two ticks. Seconds
are rounded to the nearest nanosecond on entry. The wheel then rounds deadlines up to a tick and the
current time down, so no timer fires early.
"""

from __future__ import annotations

import math
from typing import Final, SupportsFloat

from mypy_extensions import i64

from aiowheel._arguments import safe_repr

FOREVER: Final = 2**61 - 1  #: nanoseconds; stands for `inf` and for every time beyond 73 years
_FOREVER_SECONDS: Final = 2.305843009e9
_WHOLE: Final = 2_305_843_009  # the same bound in whole seconds


def delay_to_ns(name: str, seconds: object) -> i64:
    """Convert an argument in seconds, of either sign, to nanoseconds.

    Args:
        name: The argument's name, for the error.
        seconds: A number or a timedelta; `inf` and values beyond 73 years become FOREVER.

    Raises:
        TypeError: *seconds* is not a number. bool, None and numpy's durations and texts are not.
        ValueError: *seconds* is NaN.
    """
    if type(seconds) is float:
        return seconds_to_ns(name, seconds)
    if type(seconds) is int and -_WHOLE < seconds < _WHOLE:
        return i64(seconds) * 1_000_000_000
    from datetime import timedelta  # most processes pass numbers; see _types.py

    if isinstance(seconds, timedelta):
        return seconds_to_ns(name, seconds.total_seconds())
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, SupportsFloat)
        or _is_no_number_of_numpy(seconds)
    ):
        raise _no_delay(name, seconds)
    try:
        number = float(seconds)
    except OverflowError:  # an integer beyond any float
        return FOREVER if seconds > 0 else -FOREVER  # type: ignore[operator]
    except (TypeError, ValueError):  # an array of numpy, or a signaling NaN
        raise _no_delay(name, seconds) from None
    return seconds_to_ns(name, number)


def _no_delay(name: str, value: object) -> TypeError:
    return TypeError(f"{name} must be a number of seconds or a timedelta, got {safe_repr(value)}")


def _is_no_number_of_numpy(value: object) -> bool:
    """Return whether *value* is a bool, date or text of numpy, which also has `__float__`."""
    return getattr(getattr(value, "dtype", None), "kind", "f") not in {"f", "i", "u"}


def seconds_to_ns(name: str, seconds: float) -> i64:
    """Round to the nearest nanosecond, at most FOREVER on either side; NaN is a ValueError."""
    if seconds >= _FOREVER_SECONDS:
        return FOREVER
    if seconds >= 0.0:
        return i64(seconds * 1e9 + 0.5)
    if seconds <= -_FOREVER_SECONDS:
        return -FOREVER
    if seconds < 0.0:
        return -i64(0.5 - seconds * 1e9)
    raise ValueError(f"{name} must be a number of seconds other than NaN, got {seconds!r}")


def checked_seconds(name: str, delay: object, least: float, most: float) -> float:
    """Return an argument in seconds if it is from *least* to *most* seconds.

    Raises:
        TypeError: As for `delay_to_ns`.
        ValueError: *delay* is out of range, or NaN.
    """
    seconds = ns_to_seconds(delay_to_ns(name, delay))
    if not least <= seconds <= most:
        raise ValueError(
            f"{name} must be from {least:g} to {most:g} seconds, got {safe_repr(delay)}"
        )
    return seconds


def checked_span(name: str, delay: object, least: i64) -> i64:
    """Return an argument in seconds as nanoseconds, if it is at least *least* of them and finite.

    Args:
        name: The argument's name, for the error.
        delay: As for `delay_to_ns`.
        least: 0 or 1.

    Raises:
        TypeError: As for `delay_to_ns`.
        ValueError: *delay* is out of range, or NaN.
    """
    ns = delay_to_ns(name, delay)
    if not least <= ns < FOREVER:
        shortest = "1e-9" if least else "0"
        limits = f"from {shortest} to 2.3e9 seconds, which are 73 years"
        raise ValueError(f"{name} must be {limits}, got {safe_repr(delay)}")
    return ns


def clock_to_ns(seconds: float) -> i64:
    """Convert a clock reading to nanoseconds, rounded as deadlines are."""
    return i64(seconds * 1e9 + 0.5) if seconds >= 0.0 else -i64(0.5 - seconds * 1e9)


def ns_to_seconds(ns: i64) -> float:
    """Convert nanoseconds to seconds; FOREVER becomes `inf`."""
    if ns >= FOREVER:
        return math.inf
    return int(ns) / 1e9  # i64 has no division by a float


def ns_to_alarm(ns: i64) -> float:
    """Return the smallest float of seconds that is not before *ns*, so that no alarm is early."""
    seconds = int(ns) / 1e9
    while clock_to_ns(seconds) < ns:
        seconds = math.nextafter(seconds, math.inf)
    return seconds
