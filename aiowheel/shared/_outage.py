"""The log events of a store that does not answer, and that answers again. Rank 4."""

from __future__ import annotations

from asyncio import get_running_loop

from aiowheel._events import emit, emit_info
from aiowheel._printable import error_repr
from aiowheel.errors import StoreUnavailableError


class Outage:
    """The failures in a row of the task that listens for hints; each series is logged once.

    One failure is no outage: it may be a lost connection, which the next attempt replaces.

    Args:
        store: The kind of the store, for the events.
    """

    def __init__(self, store: str) -> None:
        self._store = store
        self._failures = 0
        self._began = 0.0

    def failed(self, error: StoreUnavailableError) -> None:
        """Count a failure; log the second one of a series."""
        self._failures += 1
        if self._failures == 1:
            self._began = get_running_loop().time()
        elif self._failures == 2:
            emit("aiowheel.shared_store_lost", store=self._store, error=error_repr(error))

    def ended(self) -> None:
        """End the series, after a success."""
        if self._failures > 1:
            seconds = round(get_running_loop().time() - self._began, 3)
            emit_info("aiowheel.shared_store_found", store=self._store, seconds=seconds)
        self._failures = 0
