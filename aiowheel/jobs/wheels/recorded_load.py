"""A recorded trace as a load for wheels. Rank 5; needs numpy and pyarrow, no Spark.

Source: the columns of `aiowheel.trace`. A row says when an operation was created, when it was to
expire and when it ended; when a timeout ended it, the time it would have needed is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from aiowheel.errors import BadInputError
from aiowheel.jobs.wheels.feed import Chunk, Integers
from aiowheel.jobs.wheels.run import NEVER
from aiowheel.wheel._wheel import LIMIT

#: What of a trace is needed.
COLUMNS = ("created", "deadline", "finished", "outcome")
#: The longest timeout that a wheel is tried with, in nanoseconds: 30 years.
LONGEST_NS: Final = 10**18
_CHUNK = 65_536


@dataclass(frozen=True)
class RecordedLoad:
    """The operations of one event loop that were armed, ascending by creation.

    Times are nanoseconds since an origin, by default when the first of them was created: a wheel
    takes 73 years, and more than 50 have passed since 1970. A timeout beyond `LONGEST_NS` counts as
    that.

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
    def from_table(
        cls, table: pa.Table, timeout_ns: int | None = None, origin: int | None = None
    ) -> RecordedLoad:
        """Read the rows of one run.

        Args:
            table: At least `COLUMNS` of the trace.
            timeout_ns: What every operation's timeout is to be instead; None keeps their own.
            origin: The time from which times count, in those of the trace.
        """
        created = _integers(table["created"])
        finished = _integers(table["finished"])
        endless = np.asarray(table["deadline"].is_null())
        timeouts = _integers(table["deadline"].fill_null(NEVER)) - created
        if timeout_ns is not None:
            endless = np.zeros(len(created), bool)
            timeouts = np.full(len(created), timeout_ns)
        expired = np.array([outcome == "expired" for outcome in table["outcome"].to_pylist()], bool)
        # What closing its purgatory expired ahead of its deadline did not time out.
        timed_out = expired & (finished >= _integers(table["deadline"].fill_null(NEVER)))
        at_once = finished <= created
        armed = np.flatnonzero(~at_once & ~endless)
        armed = armed[np.argsort(created[armed], kind="stable")]
        start = origin
        if start is None:
            start = created[armed[0]] if len(armed) else 0
        created = created - start
        return cls(
            created[armed],
            (created + np.minimum(timeouts, LONGEST_NS))[armed],
            np.where(timed_out, NEVER, finished - start)[armed],
            at_once=int(at_once.sum()),
            without_timeout=int((endless & ~at_once).sum()),
        )

    def __len__(self) -> int:
        return len(self.created)

    @property
    def span_ns(self) -> int:
        """From the first creation to the last."""
        return int(self.created[-1]) if len(self) else 0

    @property
    def timed_out(self) -> int:
        """How many were ended by their timeout when they were recorded."""
        return int(np.count_nonzero(self.ends == NEVER))

    def check_range(self, tick_ns: int) -> None:
        """Refuse a load that no wheel of this tick can work off.

        Raises:
            BadInputError: Names the time from the first operation to the last deadline, and the
                longest that is possible.
        """
        until = int(self.deadlines.max()) if len(self) else 0
        if until + tick_ns > LIMIT:
            raise BadInputError(
                "the time from the first operation of a run to the last deadline must be at most "
                f"{(LIMIT - tick_ns) / 1e9:.10g} s with this tick, got {until / 1e9:.10g} s"
            )

    def chunks(self, first: int = 0, last: int | None = None) -> Iterator[Chunk]:
        """The operations from place *first* to before *last*, in pieces."""
        end = len(self) if last is None else last
        for place in range(first, end, _CHUNK):
            piece = slice(place, min(place + _CHUNK, end))
            yield Chunk(self.created[piece], self.deadlines[piece], self.ends[piece])


def _integers(column: pa.ChunkedArray) -> Integers:
    numbers: Integers = column.to_numpy().astype(np.int64, copy=False)
    return numbers
