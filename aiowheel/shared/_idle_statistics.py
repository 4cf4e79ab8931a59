"""The statistics of idle keys over processes: running counts, and snapshots of them. Rank 4."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple


class SharedIdleStatistics(NamedTuple):
    """A snapshot of the idle keys of one process.

    Attributes:
        partitions: Partitions that this process owns, of 64.
        keys: Keys that this process watches, in its partitions.
        remembered: Keys that this process has touched lately.
        touches: Calls of `touch` and `discard`.
        writes: Writes of touches to the store; one write carries many touches.
        values: Counters in these writes: one write has the last touch or discard of each key.
        idle: Calls of `on_idle`.
        retries: Calls of the store that were repeated because it did not answer.
        epochs: Times that the store has lost its history.
    """

    partitions: int
    keys: int
    remembered: int
    touches: int
    writes: int
    values: int
    idle: int
    retries: int
    epochs: int


@dataclass(slots=True)
class IdleCounts:
    """The counts since the object was made; the fields are those of the snapshot."""

    touches: int = 0
    writes: int = 0
    values: int = 0
    idle: int = 0
    retries: int = 0
    epochs: int = 0

    def snapshot(self, partitions: int, keys: int, remembered: int) -> SharedIdleStatistics:
        """Return the counts together with the present sizes."""
        return SharedIdleStatistics(partitions, keys, remembered, **asdict(self))
