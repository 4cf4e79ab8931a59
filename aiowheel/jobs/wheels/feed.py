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


def feed(runs: Sequence[WheelRun], chunks: Iterable[Chunk], widest_tick: int) -> int:
    """Put the same load on every one of *runs*, to its end; returns when the last one arrived.

    Args:
        runs: Fresh wheels.
        chunks: In the order of time, none of them empty.
        widest_tick: At least the tick of every run, in nanoseconds.
    """
    until = 0
    left: Integers = np.empty(0, np.int64)  # ends to come, ascending; their places are 0, 1, 2, ...
    for chunk in chunks:
        # What ends a tick past its deadline has expired: no need to hold on to it.
        ending = np.flatnonzero(chunk.ends < chunk.deadlines + widest_tick)
        ends = np.concatenate((left, chunk.ends[ending]))
        owners = np.concatenate((np.arange(len(left)), len(left) + ending))
        order = np.argsort(ends, kind="stable")
        ends, owners = ends[order], owners[order]
        # The next chunk may create at the instant of the last arrival, and comes before its ends.
        until = int(chunk.created[-1])
        done = _feed_one(runs, chunk, ends, owners, until)
        left = ends[done:]
        kept = owners[done:].tolist()
        for run in runs:
            run.keep(kept)
    rest, places = left.tolist(), list(range(len(left)))
    for run in runs:
        run.feed([], [], rest, places, NEVER)
        run.finish()
    return until


def _feed_one(
    runs: Sequence[WheelRun], chunk: Chunk, ends: Integers, owners: Integers, until: int
) -> int:
    created, deadlines = chunk.created.tolist(), chunk.deadlines.tolist()
    ends_list, owners_list = ends.tolist(), owners.tolist()
    done = 0
    for run in runs:  # how many are done depends on the load alone
        done = run.feed(created, deadlines, ends_list, owners_list, until)
    return done
