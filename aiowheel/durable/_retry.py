"""The number of attempts of a failing fire, and the pauses between them. Rank 4."""

from __future__ import annotations

from random import random

from aiowheel._arguments import checked_int, safe_repr
from aiowheel._types import Count, Delay, Share
from aiowheel._units import checked_seconds


class Retry:
    """A rule for retries: exponential backoff with jitter. Immutable.

    The second attempt starts *backoff* after the first one failed. Each further pause is twice as
    long. No pause is longer than *longest*, and jitter shortens each pause by a random share.

    Args:
        attempts: The number of attempts, from 1 to 1000; after the last one the fire becomes a dead
            letter.
        backoff: The first pause in seconds, from 0 to 2e9.
        longest: The longest pause in seconds, from 0 to 2e9.
        jitter: The largest share by which a pause is shortened, from 0 to 1.

    Raises:
        TypeError: An argument is not a number.
        ValueError: An argument is out of range.
    """

    __slots__ = ("_attempts", "_backoff", "_jitter", "_longest")

    def __init__(
        self,
        attempts: Count = 5,
        *,
        backoff: Delay = 1.0,
        longest: Delay = 3600.0,
        jitter: Share = 0.1,
    ) -> None:
        self._attempts = checked_int("attempts", attempts, 1, 1000)
        self._backoff = checked_seconds("backoff", backoff, 0, 2e9)
        self._longest = checked_seconds("longest", longest, 0, 2e9)
        if isinstance(jitter, bool) or not isinstance(jitter, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"jitter must be a number from 0 to 1, got {safe_repr(jitter)}")
        if not 0 <= jitter <= 1:
            raise ValueError(f"jitter must be from 0 to 1, got {safe_repr(jitter)}")
        self._jitter = float(jitter)

    @property
    def attempts(self) -> int:
        """The number of attempts of a fire."""
        return self._attempts

    def pause(self, attempt: int) -> float:
        """Return the seconds to wait after attempt number *attempt*, counted from 1, has failed."""
        doublings = min(attempt - 1, 1000)
        pause = min(self._backoff * 2.0**doublings, self._longest)
        return pause * (1 - self._jitter * random())  # noqa: S311 - no secret

    def __repr__(self) -> str:
        return (
            f"Retry({self._attempts}, backoff={self._backoff}, longest={self._longest}, "
            f"jitter={self._jitter})"
        )
