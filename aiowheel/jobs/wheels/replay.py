"""A recorded trace once more, on another wheel, in virtual time. Rank 5; no Spark.

Source: one wheel for every run of the trace, as every event loop has one timer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from aiowheel.errors import BadInputError
from aiowheel.jobs.report.trace_check import check_trace
from aiowheel.jobs.wheels.feed import Chunk, feed
from aiowheel.jobs.wheels.recorded_load import COLUMNS, RecordedLoad
from aiowheel.jobs.wheels.run import WheelRun
from aiowheel.trace import read_trace


@dataclass(frozen=True)
class Replay:
    """What a wheel would have done with the operations of a trace, beside what was recorded.

    Counts are summed over the runs, `levels` and `peak_pending` are the largest of any one. All
    lateness is in seconds, as quantile or maximum of fired minus deadline.

    Attributes:
        operations: That armed a timeout.
        at_once: More that were over when they were created.
        without_timeout: More that had no timeout.
        unknown: Of those that timed out in the trace, how many have a longer timeout now: how long
            they would have taken is not known, they time out here as well.
        ended_late: Of those that time out here, how many ended otherwise in the trace: after their
            deadline, because the event loop was busy and had not come to their timeout; or, with
            another timeout, after that one.
        recorded: What the trace says: expired, late_p50, late_p99, late_max.
        replayed: The same of the wheel, and inserts, cascaded, wake_ups, levels, peak_pending.
    """

    operations: int
    at_once: int
    without_timeout: int
    unknown: int
    ended_late: int
    recorded: Mapping[str, float]
    replayed: Mapping[str, float]


def replay_trace(
    folder: str | os.PathLike[str],
    *,
    tick_ns: int,
    wheel_size: int,
    timeout_ns: int | None = None,
    purgatory: str | None = None,
    show: Callable[[int, int], object] | None = None,
) -> Replay:
    """Drive wheels through a recorded trace.

    Args:
        folder: Where the trace is.
        tick_ns: Width of a bucket.
        wheel_size: Buckets a level.
        timeout_ns: What every timeout is to be instead; None keeps their own.
        purgatory: The only one to replay; None replays all.
        show: Called now and then with the operations that were replayed, and with all of them.

    Raises:
        BadInputError: The folder holds no such trace, or the wheel cannot turn.

    Cost: memory for four columns of the trace; some 0.5 us an operation with the compiled wheel.
    """
    table = _read(folder, purgatory)
    loads: list[RecordedLoad] = []
    wheels: list[WheelRun] = []
    unknown = 0
    for run in _runs(table):
        load = RecordedLoad.from_table(run, timeout_ns)
        load.check_range(tick_ns)
        try:
            wheel = WheelRun(tick_ns, wheel_size)
        except ValueError as error:
            raise BadInputError(str(error)) from error
        loads.append(load)
        chunks = load.chunks()
        if show is not None:
            chunks = _shown(chunks, sum(map(len, loads[:-1])), len(table), show)
        feed([wheel], chunks, tick_ns)
        wheels.append(wheel)
        if timeout_ns is not None:
            own = pc.subtract(run["deadline"], run["created"])
            late = pc.greater_equal(run["lateness"], 0)
            unknown += pc.sum(pc.and_(late, pc.less(own, timeout_ns))).as_py() or 0
    return Replay(
        operations=sum(map(len, loads)),
        at_once=sum(load.at_once for load in loads),
        without_timeout=sum(load.without_timeout for load in loads),
        unknown=unknown,
        ended_late=sum(int(wheel.expired) for wheel in wheels)
        - sum(load.timed_out for load in loads),
        recorded=_recorded(table),
        replayed=_replayed(wheels),
    )


def _shown(
    chunks: Iterable[Chunk], done: int, of: int, show: Callable[[int, int], object]
) -> Iterator[Chunk]:
    for chunk in chunks:
        yield chunk
        done += len(chunk.created)
        show(done, of)


def _read(folder: str | os.PathLike[str], purgatory: str | None) -> pa.Table:
    columns = [*COLUMNS, "run_id", "purgatory", "lateness"]
    check_trace(folder)  # read as a trace, any Parquet file is one full of nulls
    table = read_trace(folder, columns=columns)
    if purgatory is None:
        return table
    names = pc.unique(table["purgatory"].cast(pa.string())).to_pylist()
    if purgatory not in names:
        known = ", ".join(map(repr, sorted(names))) or "none"
        raise BadInputError(f"the trace has no purgatory {purgatory!r}; it has {known}")
    return table.filter(pc.equal(table["purgatory"], purgatory))


def _runs(table: pa.Table) -> Iterator[pa.Table]:
    for run in pc.unique(table["run_id"].cast(pa.string())).to_pylist():
        yield table.filter(pc.equal(table["run_id"], run))


def _recorded(table: pa.Table) -> dict[str, float]:
    late = table["lateness"].filter(pc.greater_equal(table["lateness"], 0))
    found = pc.quantile(late, [0.5, 0.99, 1.0], interpolation="higher").to_pylist()
    p50, p99, most = ((value or 0) / 1e9 for value in found)
    return {"expired": len(late), "late_p50": p50, "late_p99": p99, "late_max": most}


def _replayed(wheels: Iterable[WheelRun]) -> dict[str, float]:
    runs = list(wheels)
    return {
        "expired": sum(int(run.expired) for run in runs),
        "late_p50": _quantile(runs, 0.5),
        "late_p99": _quantile(runs, 0.99),
        "late_max": max((run.lateness.maximum for run in runs), default=0.0),
        "inserts": sum(run.inserts for run in runs),
        "cascaded": sum(run.cascaded for run in runs),
        "wake_ups": sum(int(run.wake_ups) for run in runs),
        "levels": max((run.levels for run in runs), default=0),
        "peak_pending": max((int(run.peak_pending) for run in runs), default=0),
    }


def _quantile(runs: list[WheelRun], share: float) -> float:
    """Of all runs together, from their histograms: at most 6.25 % above the true value."""
    buckets = sorted(bucket for run in runs for bucket in run.lateness.buckets())
    wanted = share * sum(count for _, count in buckets)
    seen = 0
    for upper, count in buckets:
        seen += count
        if seen >= wanted:
            return min(upper, max(run.lateness.maximum for run in runs))
    return 0.0
