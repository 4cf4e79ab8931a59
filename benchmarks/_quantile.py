"""A quantile of measured values."""

from collections.abc import Sequence


def quantile(ordered: Sequence[float], q: float) -> float:
    """Return the value that a share *q* of the *ordered* values does not exceed."""
    return ordered[min(int(q * len(ordered)), len(ordered) - 1)]
