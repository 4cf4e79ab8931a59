"""The purgatory over a recorded trace in one process, without Spark. Rank 5."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from aiowheel.jobs.operations.files import (
    Rejects,
    format_of_trace,
    read_events,
    read_operations,
    refuse_doubled,
    refuse_without_good_rows,
    write_outcomes,
    write_rejects,
)
from aiowheel.jobs.operations.results import PurgatoryResult, results_beside
from aiowheel.jobs.operations.shard import Shard
from aiowheel.readers import Format
from aiowheel.rules import COMPLETED, NEVER


def run_replay(
    operations: Path, events: Path, out: Path, tick: int, form: Format | None
) -> PurgatoryResult:
    """Write the outcomes of a trace to ``out/outcomes`` and its bad rows to ``out/rejects``.

    Args:
        operations: A file or folder.
        events: A file or folder.
        out: Created if missing; results of an earlier run are replaced.
        tick: The tick of the wheel, in the unit of the trace.
        form: The format of the files; None derives it from the suffixes.

    Raises:
        BadInputError: An input is missing or is not a trace, a table has only bad rows, or two
            operations have one id.
        AiowheelError: A row was lost; *out* keeps the results of the earlier run.

    Cost: the trace is held in memory, about 500 bytes a row.
    """
    shard = Shard(tick)
    rejects = _feed(shard, operations, events, form)
    used = len(shard.operations), len(shard.events)
    endings = shard.settle(NEVER - 1)
    with results_beside(out) as folder:
        if endings:
            (folder / "outcomes").mkdir()
            write_outcomes(folder / "outcomes" / "part-0.parquet", endings)
        if rejects:
            (folder / "rejects").mkdir()
            write_rejects(folder / "rejects" / "part-0.parquet", rejects)
        completed = sum(ending.outcome == COMPLETED for ending in endings)
        found = PurgatoryResult(
            operations=used[0],
            events=used[1],
            rejected=len(rejects),
            completed=completed,
            expired=len(endings) - completed,
            pending=len(shard),
        )
        found.check(sum(used) + len(rejects))
        return found


def _feed(shard: Shard, operations: Path, events: Path, form: Format | None) -> Rejects:
    """Read both tables into *shard*; return the rejected rows."""
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
            refuse_without_good_rows(path, len(bad), bad[-1][1])
    counts = Counter(row.id for row in shard.operations)
    if len(counts) < len(shard.operations):
        ((doubled, count),) = counts.most_common(1)
        refuse_doubled(operations, count, doubled)
    return bad_operations + bad_events
