"""How many requests wait, in all and of each client. Rank 5."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from random import uniform

from starlette.requests import HTTPConnection

from aiowheel.serve._limits import Limits
from aiowheel.serve._refusal import Refusal


class Crowd:
    """Seats for long polls and subscriptions."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._seated: Counter[str] = Counter()  # by the client's address
        self._in_all = 0

    def __len__(self) -> int:
        return self._in_all

    @property
    def clients(self) -> int:
        """Addresses that wait."""
        return len(self._seated)

    @contextmanager
    def seat(self, connection: HTTPConnection) -> Generator[None]:
        """One seat for the client of *connection*, while the block runs.

        Raises:
            Refusal: All seats are taken: 503, or all of this client: 429; try again later.
        """
        limits = self._limits
        client = connection.client.host if connection.client else ""
        if self._in_all >= limits.waiters:
            detail = f"{limits.waiters} clients wait already, that is all there may be"
            raise Refusal(503, "too_many_waiters", detail, retry_after())
        if self._seated[client] >= limits.waiters_per_client:
            detail = f"{limits.waiters_per_client} requests of your address wait already"
            raise Refusal(429, "too_many_waiters_of_client", detail, retry_after())
        self._seated[client] += 1
        self._in_all += 1
        try:
            yield
        finally:
            self._in_all -= 1
            self._seated[client] -= 1
            if not self._seated[client]:
                del self._seated[client]


def retry_seconds() -> float:
    """When a client should come back: in 1 to 5 seconds, not all clients at once."""
    return uniform(1, 5)  # noqa: S311 - spreads a herd


def retry_after() -> dict[str, str]:
    """The same as a header."""
    return {"Retry-After": str(round(retry_seconds()))}
