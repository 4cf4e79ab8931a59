"""Random timeouts: clients that start at the same time end at different times. Rank 4."""

from __future__ import annotations

import math
from random import uniform

from aiowheel._arguments import safe_repr
from aiowheel._types import Delay
from aiowheel._units import delay_to_ns, ns_to_seconds


def spread(name: str, longest: Delay | None, jitter: Delay) -> float:
    """Return a random time between *longest* - *jitter* and *longest*, in seconds.

    The result is never above *longest*, because a longer timeout, such as a proxy's, may apply too.

    Args:
        name: The caller's name of *longest*, for the error.
        longest: Seconds or timedelta; None is no limit; less than 0 counts as 0.
        jitter: Seconds or timedelta, finite, from 0 to *longest*.

    Raises:
        TypeError: An argument is not a number.
        ValueError: An argument is NaN, or *jitter* is out of range.
    """
    most = math.inf if longest is None else ns_to_seconds(max(delay_to_ns(name, longest), 0))
    span = ns_to_seconds(delay_to_ns("jitter", jitter))
    if not 0 <= span <= most or span == math.inf:
        raise ValueError(
            f"jitter must be finite, from 0 to {most:g} seconds, got {safe_repr(jitter)}"
        )
    return most - uniform(0, span) if span else most  # noqa: S311 - no secret
