"""The report that `aiowheel idle --stream` prints at its end. Rank 5."""

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from aiowheel._printable import printable
from aiowheel.cli._batch_tally import BatchTally, ReportBatch
from aiowheel.cli._idle_file import summarize
from aiowheel.cli._job_output import print_json, print_lines
from aiowheel.errors import AiowheelError
from aiowheel.jobs.spark.progress import BatchCounts, batch_counts, observed
from aiowheel.jobs.spark.stream_run import Until
from aiowheel.jobs.spark.uris import local_path

if TYPE_CHECKING:
    from aiowheel.jobs.idle.stream import IdleStream
    from aiowheel.jobs.idle.table_stream import IdleTableStream


class StreamTally(BatchTally):
    """Totals over the micro-batches of an idle stream."""

    def __init__(self, report: ReportBatch, last_batch: int = -1) -> None:
        super().__init__(report, last_batch)
        self.rows = self.rejected = self.irregular = self.late = 0

    def _add(self, batch: Any) -> BatchCounts:
        counts = batch_counts(batch)
        if counts.late < 0:
            used, read = counts.rows - counts.rejected - counts.late, counts.rows - counts.rejected
            raise AiowheelError(
                f"batch {batch.batchId}: {used:,} rows were used where {read:,} were read: "
                "the result of this stream is wrong"
            )
        self.rows += counts.rows - counts.rejected
        self.rejected += counts.rejected
        self.late += counts.late
        (irregular,) = observed(batch, "touches", "irregular")
        self.irregular += irregular
        return counts


@dataclass(frozen=True, slots=True)
class StreamReport:
    """The result of one run of a stream; times are integers of ``unit``.

    Attributes:
        unit: Unit of all times.
        timeout: Timeout in that unit.
        ended: Reason of the end: "stopped", "once" or "drained".
        micro_batches: Number of micro-batches.
        rows: Number of rows used.
        rejected: Number of rows left out.
        irregular: Number of rows used although their number of fields was wrong.
        late: Number of rows that arrived later than allowed and were dropped.
        idle_events: Number of events written by this run.
        rows_per_second: Rows used, divided by the duration of the micro-batches with rows.
        batch_seconds: Median duration of the micro-batches with rows.
        fixed_seconds: Median duration of the micro-batches without rows: the fixed cost of one.
            None if there were none.
        total_events: Number of events of all runs; only for a drained stream whose results are in
            a folder on this machine.
        sha256: SHA-256 of their lines ``fire<TAB>key<LF>``, with the same condition.
        out: The folder or table of the results.
        seconds: Duration of the run.
    """

    unit: str
    timeout: int
    ended: str
    micro_batches: int
    rows: int
    rejected: int
    irregular: int
    late: int
    idle_events: int
    rows_per_second: float
    batch_seconds: float | None
    fixed_seconds: float | None
    total_events: int | None
    sha256: str | None
    out: str
    seconds: float


def stream_report(
    stream: "IdleStream | IdleTableStream",
    out: str,
    ended: Until,
    tally: StreamTally,
    seconds: float,
) -> StreamReport:
    """Return the report of a run whose results are at *out*."""
    from aiowheel.jobs.idle.stream import read_idle_events

    folder = local_path(out)
    last = stream.checkpoint.last_finished_batch()
    total = None
    if ended is Until.DRAINED and folder is not None:
        total = summarize(read_idle_events(folder / "events"))
    return StreamReport(
        unit=stream.unit,
        timeout=stream.timeout,
        ended=ended,
        micro_batches=tally.batches,
        rows=tally.rows,
        rejected=tally.rejected,
        irregular=tally.irregular,
        late=tally.late,
        # Like the rows, those of finished micro-batches: the next run repeats an interrupted one.
        idle_events=sum(events for batch, events in stream.written.items() if batch <= last),
        rows_per_second=tally.rate(tally.rows),
        batch_seconds=tally.batch_seconds,
        fixed_seconds=tally.fixed_seconds,
        total_events=total.events if total else None,
        sha256=total.sha256 if total else None,
        out=out,
        seconds=round(seconds, 3),
    )


def print_stream_report(
    report: StreamReport, rejects: str, late: str = "", *, as_json: bool
) -> None:
    """Print the report on stdout, and the numbers of rejected, irregular and late rows on stderr.

    Args:
        report: The report.
        rejects: A text that names the place of the rejected rows.
        late: The end of the line about late rows, with their likely cause.
        as_json: Print JSON instead of lines.
    """
    if report.late:
        rows, were = ("row", "was") if report.late == 1 else ("rows", "were")
        print(
            f"aiowheel: {report.late:,} {rows} came later than --max-lateness and {were} dropped"
            f"{late}",
            file=sys.stderr,
        )
    if report.rejected or report.irregular:
        print(
            f"aiowheel: {report.rejected:,} rejected, {report.irregular:,} irregular and used "
            f"all the same: {printable(rejects)}",
            file=sys.stderr,
        )
    if as_json:
        print_json(asdict(report))
    else:
        print_lines(_lines(report))


def _lines(report: StreamReport) -> list[tuple[str, str]]:
    lines = [
        ("ended", report.ended),
        ("timeout", f"{report.timeout:,} {report.unit}"),
        ("batches", f"{report.micro_batches:,}"),
        ("rows used", f"{report.rows:,}"),
        ("rejected", f"{report.rejected:,}"),
        ("irregular", f"{report.irregular:,}"),
        ("late, lost", f"{report.late:,}"),
        ("idle events", f"{report.idle_events:,}"),
    ]
    if report.batch_seconds is not None:
        lines.append(("a batch", f"{report.batch_seconds:.1f} s"))
    if report.fixed_seconds is not None:
        lines.append(("an empty one", f"{report.fixed_seconds:.1f} s"))
    lines.append(("rate", f"{report.rows_per_second:,.0f} rows/s"))
    if report.sha256 is not None:
        lines += [("all events", f"{report.total_events:,}"), ("sha256", report.sha256)]
    return [*lines, ("written to", report.out), ("took", f"{report.seconds:.1f} s")]
