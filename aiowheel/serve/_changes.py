"""The changes of a database that this process has seen, to detect a lost history. Rank 5.

A change is the number of a write transaction; see `_topic_tables`.

A database may come back in an earlier state: after a failover to a replica that lagged behind, or
from a backup. Versions would then be used again. Each process therefore remembers the highest
change that it has seen. If the database has a lower one, all topics and counters get new epochs.
The number of the next change is then the time in microseconds, so that it is above the changes that
the other processes have seen, and above those of a history that is lost later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiowheel.errors import StoreUnavailableError

T = TypeVar("T")

_ATTEMPTS = 3  # reads of a database that comes back in an earlier state again and again


class Changes:
    """The highest change that this process has seen in committed transactions.

    Attributes:
        highest: That change; 0 before the first one.
    """

    __slots__ = ("_writing", "highest")

    def __init__(self) -> None:
        self.highest = 0
        self._writing = 0  # change of the write transaction that is under way; 0 if it has none

    def shows_loss(self, change: int) -> bool:
        """Record the change of a new write transaction; return whether the database went back.

        If so, the caller begins new epochs in the same transaction, and calls `replace`.
        """
        self._writing = change
        return change <= self.highest

    def replace(self, change: int) -> None:
        """Replace the number of the write transaction that is under way."""
        self._writing = change

    def taken(self) -> int:
        """Return the change of the write transaction that ends, for `note` after the commit."""
        change, self._writing = self._writing, 0
        return change

    def note(self, change: int) -> None:
        """Record the change of a committed transaction."""
        self.highest = max(self.highest, change)

    async def read(
        self, read: Callable[[], Awaitable[tuple[int, T]]], repair: Callable[[], Awaitable[object]]
    ) -> T:
        """Return the result of *read*; if its change is too low, call *repair* and read again.

        Args:
            read: Returns the last change, and the result.
            repair: Makes a write transaction with a change.
        """
        for _ in range(_ATTEMPTS):
            # Taken before the read, because a write may be committed during the read.
            highest = self.highest
            change, result = await read()
            if change >= highest:
                self.note(change)
                return result
            await repair()
        raise StoreUnavailableError("the store came back in an earlier state again and again")
