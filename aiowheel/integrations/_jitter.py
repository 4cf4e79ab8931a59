"""Random times, so that what began together does not go on together. Rank 4."""

from __future__ import annotations

import math
from random import uniform

from aiowheel._units import delay_to_ns, ns_to_seconds


def spread(longest: object, jitter: object) -> float:
    """A random time between *longest* - *jitter* and *longest*, in seconds.

    It never exceeds *longest*, which may have to stay below somebody else's patience.

    Args:
        longest: Seconds or timedelta; less than 0 counts as 0.
        jitter: The same, finite, from 0 to *longest*.

    Raises:
        TypeError: An argument is no number.
        ValueError: One is NaN, or *jitter* is out of range.
    """
    most = ns_to_seconds(max(delay_to_ns("timeout", longest), 0))
    span = ns_to_seconds(delay_to_ns("jitter", jitter))
    if not 0 <= span <= most or span == math.inf:
        raise ValueError(f"jitter must be finite, from 0 to {most:g} seconds, got {jitter!r}")
    return most - uniform(0, span) if span else most  # noqa: S311 - to spread, no secret
