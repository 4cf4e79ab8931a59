"""The number of waiting requests, in total and per client, and its limits. Rank 5."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from starlette.requests import HTTPConnection

from aiowheel.serve._limits import Limits
from aiowheel.serve._refusal import Refusal, retry_after


class Waiters:
    """Counts waiting long polls and subscriptions, and refuses those above the limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_client: Counter[str] = Counter()  # by the client's address
        self._total = 0

    def __len__(self) -> int:
        return self._total

    @property
    def clients(self) -> int:
        """Number of client addresses with waiting requests."""
        return len(self._by_client)

    @contextmanager
    def admit(self, connection: HTTPConnection) -> Generator[None]:
        """Count the client of *connection* as waiting while the block runs.

        Raises:
            Refusal: The limit of waiting requests (503), or of those of this client (429), is
                reached. The response has `Retry-After`.
        """
        limits = self._limits
        client = connection.client.host if connection.client else ""
        if self._total >= limits.waiters:
            detail = f"the limit of {limits.waiters} waiting requests is reached"
            raise Refusal(503, "too_many_waiters", detail, retry_after())
        if self._by_client[client] >= limits.waiters_per_client:
            most = limits.waiters_per_client
            detail = f"the limit of {most} waiting requests per client address is reached"
            raise Refusal(429, "too_many_waiters_of_client", detail, retry_after())
        self._by_client[client] += 1
        self._total += 1
        try:
            yield
        finally:
            self._total -= 1
            self._by_client[client] -= 1
            if not self._by_client[client]:
                del self._by_client[client]
