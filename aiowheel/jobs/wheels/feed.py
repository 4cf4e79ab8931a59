"""Operations as columns, fed to wheels in time order. Rank 5; needs numpy, no Spark.

Source: arrivals come sorted, in chunks; completions do not. The completions of each chunk are
sorted together with the remaining ones of earlier chunks, so memory holds one chunk and the pending
operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from aiowheel.jobs.wheels.run import NEVER, WheelRun

Integers = npt.NDArray[np.int64]
#: Number of operations of a whole chunk.
CHUNK: Final = 65_536
#: The longest time that a load may contain, in nanoseconds: 30 years.
LONGEST_NS: Final = 10**18


@dataclass(frozen=True, slots=True)
class Chunk:
    """A number of operations, ascending by `created`; times in nanoseconds.

    Attributes:
        created: The arrival of each operation.
        deadlines: The deadline of each operation.
        ends: When the condition of each operation is met, at or after `created`; or `NEVER`.
    """

    created: Integers
    deadlines: Integers
    ends: Integers


class Feeding:
    """A feeder of the same load to several wheels, chunk by chunk.

    Args:
        runs: Unused wheels.
        widest_tick: At least the tick of every wheel, in nanoseconds.
    """

    def __init__(self, runs: Sequence[WheelRun], widest_tick: int) -> None:
        self._runs = runs
        self._widest_tick = widest_tick
        # Remaining completions, ascending; the indexes of their operations are 0, 1, 2, ...
        self._left: Integers = np.empty(0, np.int64)

    def feed(self, chunk: Chunk) -> None:
        """Process the arrivals of *chunk*, which is not empty, and completions before its last."""
        # A completion more than a tick after its deadline comes after the timeout: it can be
        # dropped.
        ending = np.flatnonzero(chunk.ends < chunk.deadlines + self._widest_tick)
        left = self._left
        ends = np.concatenate((left, chunk.ends[ending]))
        owners = np.concatenate((np.arange(len(left)), len(left) + ending))
        order = np.argsort(ends, kind="stable")
        # The next chunk may have arrivals at the instant of the last one; they precede completions.
        until = int(chunk.created[-1])
        created, deadlines = chunk.created.tolist(), chunk.deadlines.tolist()
        self._work(created, deadlines, ends[order], owners[order], until)

    def advance(self, until: int) -> None:
        """Process everything before *until*; no later arrival may lie before it."""
        self._work([], [], self._left, np.arange(len(self._left)), until)
        for run in self._runs:
            run.advance(until - 1)

    def finish(self) -> None:
        """Process all pending operations."""
        self._work([], [], self._left, np.arange(len(self._left)), NEVER)
        for run in self._runs:
            run.finish()

    def _work(
        self,
        created: list[int],
        deadlines: list[int],
        ends: Integers,
        owners: Integers,
        until: int,
    ) -> None:
        ends_list, owners_list = ends.tolist(), owners.tolist()
        done = 0
        for run in self._runs:  # each run processes the same number: it depends on the load
            done = run.feed(created, deadlines, ends_list, owners_list, until)
        self._left = ends[done:]
        kept = owners[done:].tolist()
        for run in self._runs:
            run.keep(kept)


def feed(runs: Sequence[WheelRun], chunks: Iterable[Chunk], widest_tick: int) -> int:
    """Feed the same load to all *runs*, to its end; return the time of the last arrival.

    Args:
        runs: Unused wheels.
        chunks: In time order, none of them empty.
        widest_tick: At least the tick of every wheel, in nanoseconds.
    """
    feeding = Feeding(runs, widest_tick)
    last = 0
    for chunk in chunks:
        feeding.feed(chunk)
        last = int(chunk.created[-1])
    feeding.finish()
    return last
