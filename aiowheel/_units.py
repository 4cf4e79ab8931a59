"""Seconds to nanoseconds and back: the only file that rounds. Rank 0.

Inside, times are whole nanoseconds on the scale of the event loop's clock, so that 0.1 + 0.2 and
0.3 are one deadline and a clock of 200 days' uptime still tells two ticks apart. Seconds are
rounded to the nearest nanosecond on the way in; the wheel then rounds deadlines up to a tick and
"now" down, so nothing is early.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Final, SupportsFloat

from mypy_extensions import i64

FOREVER: Final = 2**61 - 1  #: nanoseconds; what `inf` and anything beyond 73 years become
_FOREVER_SECONDS: Final = 2.305843009e9
_WHOLE: Final = 2_305_843_009  # whole seconds, the same bound


def delay_to_ns(name: str, seconds: object) -> i64:
    """A caller's stretch of time, of either sign, in nanoseconds.

    Args:
        name: What the caller calls it, for the error.
        seconds: A number or a timedelta; `inf` and whatever exceeds 73 years become FOREVER.

    Raises:
        TypeError: *seconds* is no number (bool and None are none, nor are numpy's durations and
            texts).
        ValueError: *seconds* is NaN.
    """
    if type(seconds) is float:
        return seconds_to_ns(name, seconds)
    if type(seconds) is int and -_WHOLE < seconds < _WHOLE:
        return i64(seconds) * 1_000_000_000
    if isinstance(seconds, timedelta):
        return seconds_to_ns(name, seconds.total_seconds())
    if isinstance(seconds, bool) or not isinstance(seconds, SupportsFloat) or _is_odd(seconds):
        raise TypeError(f"{name} must be a number of seconds or a timedelta, got {seconds!r}")
    try:
        return seconds_to_ns(name, float(seconds))
    except OverflowError:  # an integer beyond any float
        return FOREVER if seconds > 0 else -FOREVER  # type: ignore[operator]


def _is_odd(value: object) -> bool:
    """Whether *value* is numpy's, but no real number of it: a bool, date or text would pass."""
    return getattr(getattr(value, "dtype", None), "kind", "f") not in {"f", "i", "u"}


def seconds_to_ns(name: str, seconds: float) -> i64:
    """Nearest nanosecond, at most FOREVER either side of zero; NaN is a ValueError."""
    if seconds >= _FOREVER_SECONDS:
        return FOREVER
    if seconds >= 0.0:
        return i64(seconds * 1e9 + 0.5)
    if seconds <= -_FOREVER_SECONDS:
        return -FOREVER
    if seconds < 0.0:
        return -i64(0.5 - seconds * 1e9)
    raise ValueError(f"{name} must not be NaN")


def clock_to_ns(seconds: float) -> i64:
    """A clock reading in nanoseconds, by the same rounding as deadlines."""
    return i64(seconds * 1e9 + 0.5) if seconds >= 0.0 else -i64(0.5 - seconds * 1e9)


def ns_to_seconds(ns: i64) -> float:
    """Nanoseconds as seconds; FOREVER is `inf`."""
    if ns >= FOREVER:
        return math.inf
    return int(ns) / 1e9  # i64 has no division by a float


def ns_to_alarm(ns: i64) -> float:
    """The earliest float of seconds that is not before *ns*: an alarm must not ring early."""
    seconds = int(ns) / 1e9
    while clock_to_ns(seconds) < ns:
        seconds = math.nextafter(seconds, math.inf)
    return seconds
