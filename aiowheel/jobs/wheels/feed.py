"""Operations as columns, fed to wheels in the order of time. Rank 5; needs numpy, no Spark.

Source: arrivals come sorted, in chunks; completions do not. Each chunk's are sorted together with
what the chunks before have left over, so memory holds one chunk and what is under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aiowheel.jobs.wheels.run import NEVER, WheelRun

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some operations, ascending by `created`; times in nanoseconds.

    Attributes:
        created: When each arrives.
        deadlines: When each is to expire.
        ends: When each one's condition is met, not before it is created; `NEVER` for never.
    """

    created: Integers
    deadlines: Integers
    ends: Integers


class Feeding:
    """Puts the same load on every one of some wheels, part by part.

    Args:
        runs: Fresh wheels.
        widest_tick: At least the tick of every run, in nanoseconds.
    """

    def __init__(self, runs: Sequence[WheelRun], widest_tick: int) -> None:
        self._runs = runs
        self._widest_tick = widest_tick
        # Ends to come, ascending; their places are 0, 1, 2, ...
        self._left: Integers = np.empty(0, np.int64)

    def feed(self, chunk: Chunk) -> None:
        """Work off the arrivals of *chunk*, which is not empty, and what ends before the last."""
        # What ends a tick past its deadline has expired: no need to hold on to it.
        ending = np.flatnonzero(chunk.ends < chunk.deadlines + self._widest_tick)
        left = self._left
        ends = np.concatenate((left, chunk.ends[ending]))
        owners = np.concatenate((np.arange(len(left)), len(left) + ending))
        order = np.argsort(ends, kind="stable")
        # The next chunk may create at the instant of the last arrival, and comes before its ends.
        until = int(chunk.created[-1])
        created, deadlines = chunk.created.tolist(), chunk.deadlines.tolist()
        self._work(created, deadlines, ends[order], owners[order], until)

    def advance(self, until: int) -> None:
        """Work off what happens before *until*, which no later arrival lies before."""
        self._work([], [], self._left, np.arange(len(self._left)), until)
        for run in self._runs:
            run.advance(until - 1)

    def finish(self) -> None:
        """Work off all that is pending."""
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
        for run in self._runs:  # how many are done depends on the load alone
            done = run.feed(created, deadlines, ends_list, owners_list, until)
        self._left = ends[done:]
        kept = owners[done:].tolist()
        for run in self._runs:
            run.keep(kept)


def feed(runs: Sequence[WheelRun], chunks: Iterable[Chunk], widest_tick: int) -> int:
    """Put the same load on every one of *runs*, to its end; returns when the last one arrived.

    Args:
        runs: Fresh wheels.
        chunks: In the order of time, none of them empty.
        widest_tick: At least the tick of every run, in nanoseconds.
    """
    feeding = Feeding(runs, widest_tick)
    last = 0
    for chunk in chunks:
        feeding.feed(chunk)
        last = int(chunk.created[-1])
    feeding.finish()
    return last
