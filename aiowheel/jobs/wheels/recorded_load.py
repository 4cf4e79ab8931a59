"""A recorded trace as a load for wheels. Rank 5; needs numpy and pyarrow, no Spark.

Source: the columns of `aiowheel.trace`. A row says when an operation was created, when it was to
expire and when it ended; when a timeout ended it, how long it would have taken nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from aiowheel.jobs.wheels.feed import Chunk, Integers
from aiowheel.jobs.wheels.run import NEVER

#: What of a trace is needed.
COLUMNS = ("created", "deadline", "finished", "outcome")
_CHUNK = 65_536


@dataclass(frozen=True)
class RecordedLoad:
    """The operations of one event loop that were armed, ascending by creation; times in ns.

    Attributes:
        created: When each was.
        deadlines: When each was to expire.
        ends: When each ended but for its timeout; `NEVER` where the timeout ended it.
        at_once: How many more were over when they were created, and armed no timeout.
        without_timeout: How many more had none.
    """

    created: Integers
    deadlines: Integers
    ends: Integers
    at_once: int
    without_timeout: int

    @classmethod
    def from_table(cls, table: pa.Table, timeout_ns: int | None = None) -> RecordedLoad:
        """Read the rows of one run.

        Args:
            table: At least `COLUMNS` of the trace.
            timeout_ns: What every operation's timeout is to be instead; None keeps their own.
        """
        created = _integers(table["created"])
        finished = _integers(table["finished"])
        endless = np.asarray(table["deadline"].is_null())
        deadlines = _integers(table["deadline"].fill_null(NEVER))
        if timeout_ns is not None:
            endless = np.zeros(len(created), bool)
            deadlines = created + timeout_ns
        expired = np.array([outcome == "expired" for outcome in table["outcome"].to_pylist()], bool)
        # What closing its purgatory expired ahead of its deadline did not time out.
        timed_out = expired & (finished >= _integers(table["deadline"].fill_null(NEVER)))
        ends = np.where(timed_out, NEVER, finished)
        at_once = finished <= created
        armed = np.flatnonzero(~at_once & ~endless)
        armed = armed[np.argsort(created[armed], kind="stable")]
        return cls(
            created[armed],
            deadlines[armed],
            ends[armed],
            at_once=int(at_once.sum()),
            without_timeout=int((endless & ~at_once).sum()),
        )

    def __len__(self) -> int:
        return len(self.created)

    @property
    def start(self) -> int:
        """When the first operation was created; 0 without any."""
        return int(self.created[0]) if len(self) else 0

    @property
    def span_ns(self) -> int:
        """From the first creation to the last."""
        return int(self.created[-1] - self.created[0]) if len(self) else 0

    def chunks(self) -> Iterator[Chunk]:
        """The load in pieces."""
        for first in range(0, len(self), _CHUNK):
            piece = slice(first, first + _CHUNK)
            yield Chunk(self.created[piece], self.deadlines[piece], self.ends[piece])


def _integers(column: pa.ChunkedArray) -> Integers:
    numbers: Integers = column.to_numpy().astype(np.int64, copy=False)
    return numbers
