"""The result tables of a run over a trace, moved into place together. Rank 5: no Spark here."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiowheel._outputs import check_table, whole_folder
from aiowheel.errors import AiowheelError
from aiowheel.jobs.operations.files import write_outcomes


@dataclass(frozen=True, slots=True)
class PurgatoryResult:
    """The counts of a run over a trace.

    Attributes:
        operations: Operations used.
        events: Events used.
        rejected: Rejected rows of both tables.
        completed: Operations that met their keys in time.
        expired: Operations that did not.
        pending: Operations without a deadline that have not met their keys.
    """

    operations: int
    events: int
    rejected: int
    completed: int
    expired: int
    pending: int

    def check(self, rows: int) -> None:
        """Check that the counts agree.

        Args:
            rows: The number of rows read from both tables.

        Raises:
            AiowheelError: A row was lost or duplicated.
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

    If the block raises, *out* stays unchanged. A table of outcomes is always written, a table of
    rejects only if it has rows.

    Raises:
        BadInputError: A folder that would be replaced has files that are not of a table.
    """
    for name in ("outcomes", "rejects"):
        check_table(out / name)
    with whole_folder(out) as hidden:
        yield hidden
        if not (hidden / "outcomes").exists():
            (hidden / "outcomes").mkdir()
            write_outcomes(hidden / "outcomes" / "part-0.parquet", [])
        has_rejects = (hidden / "rejects").exists()
    if not has_rejects:  # remove the rejects of an earlier run
        shutil.rmtree(out / "rejects", ignore_errors=True)
