"""Part 3: the Spark report on the traces of parts 1 and 2. Needs the `spark` extra."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ._checks import EARLY, Outcomes

if TYPE_CHECKING:
    from aiowheel.jobs.report.job import ReportResult

# The JVM runs for seconds: its optimizing compiler and parallel collector would cost more than they
# save.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def make_report(trace_folder: Path, out_folder: Path) -> ReportResult:
    """Start Spark, run the report job, stop Spark.

    Raises:
        MissingExtraError: PySpark, matplotlib or Java is missing.
        AiowheelError: Spark fails, or a file cannot be written.
    """
    from aiowheel.jobs.report.job import run_report
    from aiowheel.jobs.spark.session import open_session

    with open_session("aiowheel demo", driver_memory="1g", java_options=_SHORT_LIVED) as spark:
        return run_report(trace_folder, out_folder, spark)


def report_outcomes(result: ReportResult) -> Outcomes:
    """Return the numbers of operations in a report."""
    return Counter(
        {
            (row["purgatory"], outcome): row[outcome]
            for row in result.tables["outcomes"].to_pylist()
            for outcome in ("completed", "expired", "cancelled", "failed", EARLY)
        }
    )
