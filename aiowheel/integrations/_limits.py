"""Checking of limits in seconds, and their conversion for the timer. Rank 4.

A connection that is silent for exactly its limit is within the limit. Each limit is therefore
converted to the shortest time that exceeds it: one nanosecond more.
"""

from __future__ import annotations

from aiowheel._arguments import safe_repr
from aiowheel._types import Delay
from aiowheel._units import FOREVER, delay_to_ns, ns_to_seconds


def beyond_ns(name: str, limit: Delay | None) -> int:
    """Return the shortest time in nanoseconds that is more than *limit*; FOREVER for None.

    Raises:
        TypeError: *limit* is neither a number, a timedelta nor None.
        ValueError: *limit* is NaN, or not more than 0.
    """
    if limit is None:
        return FOREVER
    limit_ns = delay_to_ns(name, limit)
    if limit_ns <= 0:
        raise ValueError(f"{name} must be more than 0, got {safe_repr(limit)}")
    return min(limit_ns + 1, FOREVER)


def beyond(name: str, limit: Delay | None) -> float:
    """Return the shortest time in seconds that is more than *limit*; `inf` for None.

    Raises:
        TypeError: *limit* is neither a number, a timedelta nor None.
        ValueError: *limit* is NaN, or not more than 0.
    """
    return ns_to_seconds(beyond_ns(name, limit))


def heartbeat_ns(name: str, heartbeat: Delay | None, idle_name: str, idle: Delay | None) -> int:
    """Return `beyond_ns` of *heartbeat*, which must be less than the idle limit.

    Raises:
        TypeError: As `beyond_ns`.
        ValueError: *heartbeat* is not more than 0, or not less than *idle*.
    """
    if heartbeat is None:
        return FOREVER
    beat = beyond_ns(name, heartbeat)
    limit = beyond_ns(idle_name, idle)
    if limit < FOREVER and beat >= limit:
        raise ValueError(
            f"{name} must be less than {idle_name}, which is {safe_repr(idle)}, "
            f"got {safe_repr(heartbeat)}"
        )
    return beat
