"""The statistics of shared counters: running counts, and snapshots of them. Rank 4."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple


class SharedStatistics(NamedTuple):
    """A snapshot of the shared counters of one process.

    Attributes:
        keys: Keys whose values this process keeps up to date.
        waiting: Pending waits for counters in the purgatory; a wait counts once for each counter
            that it still waits for.
        publishes: Calls of `advance` and `check_and_complete`.
        writes: Writes to the store; one write carries many publishes.
        retries: Writes and reads that were repeated because the store did not answer.
        hints: Values that arrived as hints, of all keys and processes.
        gaps: Times that hints may have been lost, so that values were read again.
        reads: Reads of the store.
        epochs: Times that the store has lost its history.
    """

    keys: int
    waiting: int
    publishes: int
    writes: int
    retries: int
    hints: int
    gaps: int
    reads: int
    epochs: int


@dataclass(slots=True)
class SharedCounts:
    """The counts since the shared counters were made; they are fields of the snapshot."""

    publishes: int = 0
    writes: int = 0
    retries: int = 0
    hints: int = 0
    gaps: int = 0
    reads: int = 0
    epochs: int = 0

    def snapshot(self, keys: int, waiting: int) -> SharedStatistics:
        """Return the counts, with the numbers of keys and of their waits."""
        return SharedStatistics(keys, waiting, **asdict(self))
