"""Replaying a recorded trace on another wheel, in virtual time. Rank 5; no Spark.

Source: one wheel per run of the trace, because every event loop has one timer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil

import pyarrow as pa
import pyarrow.compute as pc

from aiowheel.errors import BadInputError
from aiowheel.jobs.wheels.feed import Chunk, feed
from aiowheel.jobs.wheels.recorded_load import COLUMNS, RecordedLoad
from aiowheel.jobs.wheels.run import WheelRun
from aiowheel.trace import read_trace
from aiowheel.trace._check import check_trace


@dataclass(frozen=True)
class Replay:
    """The behaviour of a wheel under the operations of a trace, and the recorded behaviour.

    Counts are summed over the runs; `levels` and `peak_pending` are the maxima over the runs. All
    lateness is in seconds, as quantile or maximum of fired minus deadline.

    Attributes:
        operations: Operations that armed a timeout.
        at_once: Other operations that ended at creation.
        without_timeout: Other operations without a timeout.
        unknown: Of the operations that timed out in the trace, those with a longer timeout now. How
            long they would have taken is unknown, so they time out in the replay as well.
        ended_late: Of the operations that time out in the replay, those that ended otherwise in the
            trace: after their deadline because the event loop was busy, or, with another timeout,
            after that timeout.
        recorded: The values of these operations in the trace: expired, late_p50, late_p99,
            late_max.
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
        folder: The folder of the trace.
        tick_ns: Width of a bucket.
        wheel_size: Buckets per level.
        timeout_ns: The timeout of every operation; None keeps the recorded ones.
        purgatory: The purgatory to replay; None replays all.
        show: Called periodically with the number of replayed operations and their total.

    Raises:
        BadInputError: The folder holds no such trace, or the wheel's range is too short.

    Cost: memory for four columns of the trace; about 0.5 us an operation with the compiled wheel.
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
            late = _timed_out(run)
            own = pc.subtract(late["deadline"], late["created"])
            unknown += pc.sum(pc.less(own, timeout_ns)).as_py() or 0
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
    check_trace(folder)  # first: pyarrow would read any Parquet file as rows full of nulls
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


def _timed_out(table: pa.Table) -> pa.Table:
    """Return the operations that armed a timeout and timed out."""
    late = pc.greater_equal(table["lateness"], 0)
    return table.filter(pc.and_(late, pc.greater(table["finished"], table["created"])))


def _recorded(table: pa.Table) -> dict[str, float]:
    ordered = _timed_out(table)["lateness"].sort()

    def seconds(share: float) -> float:  # by the nearest rank, as in the report
        return ordered[ceil(share * len(ordered)) - 1].as_py() / 1e9 if len(ordered) else 0.0

    return {
        "expired": len(ordered),
        "late_p50": seconds(0.5),
        "late_p99": seconds(0.99),
        "late_max": seconds(1),
    }


def _replayed(runs: list[WheelRun]) -> dict[str, float]:
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
    """Return a quantile over all runs, from histograms: at most 6.25 % above the true value."""
    buckets = sorted(bucket for run in runs for bucket in run.lateness.buckets())
    wanted = share * sum(count for _, count in buckets)
    seen = 0
    for upper, count in buckets:
        seen += count
        if seen >= wanted:
            return min(upper, max(run.lateness.maximum for run in runs))
    return 0.0
