"""The purgatory over a trace in one process, without Spark. Rank 5."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from aiowheel._outputs import whole_folder
from aiowheel.jobs.operations.files import (
    Rejects,
    format_of_trace,
    read_events,
    read_operations,
    refuse_for_want_of_good_rows,
    write_outcomes,
    write_rejects,
)
from aiowheel.jobs.operations.shard import Shard
from aiowheel.readers import Format
from aiowheel.rules import COMPLETED, NEVER


@dataclass(frozen=True, slots=True)
class PurgatoryResult:
    """What a run over a trace found.

    Attributes:
        operations: Rows used.
        events: Rows used.
        rejected: Rows of both that could not be used.
        completed: Operations that met their keys in time.
        expired: Operations that did not.
        pending: Operations without a deadline that are still waiting.
    """

    operations: int
    events: int
    rejected: int
    completed: int
    expired: int
    pending: int


def run_replay(
    operations: Path, events: Path, out: Path, tick: int, form: Format | None
) -> PurgatoryResult:
    """Write the outcomes of a trace to ``out/outcomes``, and its bad rows to ``out/rejects``.

    Args:
        operations: A file or folder.
        events: A file or folder.
        out: Made when missing; what an earlier run put there is replaced, all or nothing.
        tick: Of the wheel, in the unit of the trace.
        form: Of the files; None goes by their suffixes.

    Raises:
        BadInputError: There is nothing to read, it is no trace, or a table has bad rows only.
        AiowheelError: The disk refuses; *out* is then as it was before.

    Cost: the trace is held in memory, some 500 bytes a row.
    """
    shard = Shard(tick)
    rejects = _feed(shard, operations, events, form)
    counts = len(shard.operations), len(shard.events)
    endings = shard.settle(NEVER - 1)
    with whole_folder(out) as hidden:
        if endings:
            (hidden / "outcomes").mkdir()
            write_outcomes(hidden / "outcomes" / "part-0.parquet", endings)
        if rejects:
            (hidden / "rejects").mkdir()
            write_rejects(hidden / "rejects" / "part-0.parquet", rejects)
    remove_stale(out, outcomes=not endings, rejects=not rejects)
    return result_in(out, *counts, len(rejects))


def _feed(shard: Shard, operations: Path, events: Path, form: Format | None) -> Rejects:
    """Read both tables into *shard*; what it cannot use is returned."""
    bad_operations: Rejects = []
    bad_events: Rejects = []
    shard.feed(
        read_operations(operations, format_of_trace(operations, form), bad_operations),
        read_events(events, format_of_trace(events, form), bad_events),
    )
    for path, good, bad in (
        (operations, shard.operations, bad_operations),
        (events, shard.events, bad_events),
    ):
        if bad and not good:
            refuse_for_want_of_good_rows(path, len(bad), bad[-1][1])
    return bad_operations + bad_events


def remove_stale(out: Path, **empty: bool) -> None:
    """Remove from *out* the tables of an earlier run that are empty in this one."""
    for name, is_empty in empty.items():
        if is_empty:
            shutil.rmtree(out / name, ignore_errors=True)


def result_in(out: Path, operations: int, events: int, rejected: int) -> PurgatoryResult:
    """Count the outcomes in *out*; what waits for ever has none."""
    completed = total = 0
    for file in sorted((out / "outcomes").glob("**/*.parquet")):
        column = pq.ParquetFile(file).read(columns=["outcome"]).column("outcome")
        completed += int(pc.sum(pc.equal(column, COMPLETED)).as_py() or 0)
        total += len(column)
    return PurgatoryResult(
        operations, events, rejected, completed, total - completed, operations - total
    )
