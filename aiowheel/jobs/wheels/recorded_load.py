"""A recorded trace as a load for wheels. Rank 5; needs numpy and pyarrow, no Spark.

Source: the columns of `aiowheel.trace`. A row holds when an operation was created, its deadline and
its end; for an operation that timed out, the time it would have needed is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from aiowheel.errors import BadInputError
from aiowheel.jobs.wheels.feed import CHUNK, LONGEST_NS, Chunk, Integers
from aiowheel.jobs.wheels.run import NEVER
from aiowheel.wheel._wheel import LIMIT

#: The columns of a trace that a load needs.
COLUMNS = ("created", "deadline", "finished", "outcome")


@dataclass(frozen=True)
class RecordedLoad:
    """The operations of one event loop that armed a timeout, ascending by creation.

    Times are nanoseconds since an origin, by default the first creation: a wheel has a range of 73
    years, and more than 50 have passed since 1970. A timeout beyond `LONGEST_NS` is reduced to it.

    Attributes:
        created: The creation of each operation.
        deadlines: The deadline of each operation.
        ends: The end of each operation except by timeout; `NEVER` if the timeout ended it.
        at_once: Number of other operations that ended at creation and armed no timeout.
        without_timeout: Number of other operations without a timeout.
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
        """Build a load from the rows of one run.

        Args:
            table: At least `COLUMNS` of the trace.
            timeout_ns: The timeout of every operation; None keeps the recorded ones.
            origin: The origin of the times, in the times of the trace.
        """
        created = _integers(table["created"])
        finished = _integers(table["finished"])
        endless = np.asarray(table["deadline"].is_null())
        timeouts = _integers(table["deadline"].fill_null(NEVER)) - created
        if timeout_ns is not None:
            endless = np.zeros(len(created), bool)
            timeouts = np.full(len(created), timeout_ns)
        expired = np.array([outcome == "expired" for outcome in table["outcome"].to_pylist()], bool)
        # Operations expired early by closing their purgatory did not time out.
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
        """The time from the first to the last creation."""
        return int(self.created[-1]) if len(self) else 0

    @property
    def timed_out(self) -> int:
        """Number of operations that timed out in the recording."""
        return int(np.count_nonzero(self.ends == NEVER))

    def check_range(self, tick_ns: int) -> None:
        """Raise if no wheel of this tick has the range for the load.

        Raises:
            BadInputError: The text holds the time from the first operation to the last deadline,
                and the longest possible.
        """
        until = int(self.deadlines.max()) if len(self) else 0
        if until + tick_ns > LIMIT:
            raise BadInputError(
                "the time from the first operation of a run to the last deadline must be at most "
                f"{(LIMIT - tick_ns) / 1e9:.10g} s with this tick, got {until / 1e9:.10g} s"
            )

    def chunks(self, first: int = 0, last: int | None = None) -> Iterator[Chunk]:
        """Yield the operations from index *first* to before *last*, in chunks."""
        end = len(self) if last is None else last
        for place in range(first, end, CHUNK):
            piece = slice(place, min(place + CHUNK, end))
            yield Chunk(self.created[piece], self.deadlines[piece], self.ends[piece])


def _integers(column: pa.ChunkedArray) -> Integers:
    numbers: Integers = column.to_numpy().astype(np.int64, copy=False)
    return numbers
