"""Part 3: the Spark report on what parts 1 and 2 recorded. Rank 5; needs the `spark` extra."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ._checks import EARLY, Outcomes

if TYPE_CHECKING:
    from aiowheel.jobs.report.job import ReportResult

# The JVM lives for seconds: its second compiler and its parallel collector would not pay.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def make_report(trace_folder: Path, out_folder: Path) -> ReportResult:
    """Start Spark, run the report job, stop Spark.

    Raises:
        MissingExtraError: PySpark, matplotlib or a Java is missing.
        AiowheelError: Spark or the disk refuses.
    """
    from aiowheel.jobs.report.job import run_report
    from aiowheel.jobs.spark.session import open_session

    with open_session("aiowheel demo", driver_memory="1g", java_options=_SHORT_LIVED) as spark:
        return run_report(trace_folder, out_folder, spark)


def report_outcomes(result: ReportResult) -> Outcomes:
    """Count the operations of a report."""
    return Counter(
        {
            (row["purgatory"], outcome): row[outcome]
            for row in result.tables["outcomes"].to_pylist()
            for outcome in ("completed", "expired", "cancelled", "failed", EARLY)
        }
    )
