"""The tables of a run over a trace, put in place when nothing is lost. Rank 5: no Spark here."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiowheel._outputs import whole_folder
from aiowheel.errors import AiowheelError
from aiowheel.jobs.operations.files import write_outcomes


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

    def check(self, rows: int) -> None:
        """Compare the numbers with each other.

        Args:
            rows: Read, of both tables.

        Raises:
            AiowheelError: A row was lost or doubled.
        """
        if rows != self.operations + self.events + self.rejected:
            raise AiowheelError(
                f"rows are lost or doubled: {rows:,} read, but {self.operations:,} operations, "
                f"{self.events:,} events and {self.rejected:,} rejects"
            )
        ended = self.completed + self.expired
        if self.operations != ended + self.pending:
            raise AiowheelError(
                f"operations are lost or doubled: {self.operations:,} read, but {ended:,} outcomes "
                f"and {self.pending:,} pending; their ids must be unique"
            )


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
