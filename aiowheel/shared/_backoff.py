"""The pauses between attempts to reach a store. Rank 4."""

from __future__ import annotations

import random

_FIRST, _LONGEST = 0.02, 0.5  # seconds; a store's return is noticed within the longest pause


class Backoff:
    """Pauses that double up to half a second, each shortened at random by up to a half.

    Without the randomness, all processes would reconnect to a restarted server at the same moment.
    """

    def __init__(self) -> None:
        self._pause = _FIRST

    def next(self) -> float:
        """Return the seconds to wait before the next attempt."""
        pause = self._pause
        self._pause = min(2 * pause, _LONGEST)
        return pause * random.uniform(0.5, 1)  # noqa: S311 - a pause is no secret

    def reset(self) -> None:
        """Return to the shortest pause, after a success."""
        self._pause = _FIRST
