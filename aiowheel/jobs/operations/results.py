"""The tables of a run over a trace, put in place when nothing is lost. Rank 5: no Spark here."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from aiowheel._outputs import whole_folder
from aiowheel.errors import AiowheelError
from aiowheel.jobs.operations.files import write_outcomes
from aiowheel.rules import COMPLETED


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


@contextmanager
def results_beside(out: Path) -> Generator[Path]:
    """Yield a hidden folder; its tables replace those in *out* when the block ends.

    A block that fails leaves *out* as it was. There is a table of outcomes also when it has no row,
    and one of rejects only when it has.
    """
    with whole_folder(out) as hidden:
        yield hidden
        if not (hidden / "outcomes").exists():
            (hidden / "outcomes").mkdir()
            write_outcomes(hidden / "outcomes" / "part-0.parquet", [])
        has_rejects = (hidden / "rejects").exists()
    if not has_rejects:  # those of an earlier run
        shutil.rmtree(out / "rejects", ignore_errors=True)


def result_in(
    folder: Path, *, rows: int, operations: int, events: int, pending: int
) -> PurgatoryResult:
    """Count the tables in *folder*, and compare them with what the engine counted.

    Args:
        folder: Of the tables, either of which may be missing.
        rows: Read, of both tables.
        operations: Of these, those that were used.
        events: Of these, those that were used.
        pending: Operations that the engine left waiting.

    Raises:
        AiowheelError: A row was lost or doubled.
    """
    completed = ended = rejected = 0
    for file in (folder / "outcomes").glob("*.parquet"):
        column = pq.ParquetFile(file).read(columns=["outcome"]).column("outcome")
        completed += int(pc.sum(pc.equal(column, COMPLETED)).as_py() or 0)
        ended += len(column)
    for file in (folder / "rejects").glob("*.parquet"):
        rejected += int(pq.read_metadata(file).num_rows)
    if rows != operations + events + rejected:
        raise AiowheelError(
            f"rows are lost or doubled: {rows:,} read, but {operations:,} operations, "
            f"{events:,} events and {rejected:,} rejects"
        )
    if operations != ended + pending:
        raise AiowheelError(
            f"operations are lost or doubled: {operations:,} read, but {ended:,} outcomes and "
            f"{pending:,} pending; their ids must be unique"
        )
    return PurgatoryResult(operations, events, rejected, completed, ended - completed, pending)
