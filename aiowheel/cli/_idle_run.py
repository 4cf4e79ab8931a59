"""`aiowheel idle` over complete files: reads rows, writes one file of idle events. Rank 5."""

import shutil
import sqlite3
import time as clock
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from aiowheel._outputs import hidden_name
from aiowheel._progress import Progress
from aiowheel.cli._destination import STANDARD_OUTPUT, check_destination
from aiowheel.cli._idle_file import IdleSummary, write_idle_events
from aiowheel.cli._idle_report import IdleReport, print_remarks, print_report
from aiowheel.cli._idle_table import TableOptions
from aiowheel.cli._options import Engine, refuse_pipes
from aiowheel.cli._session import OpenSession
from aiowheel.errors import AiowheelError, BadInputError, MissingExtraError
from aiowheel.readers import Batch, Inputs, RejectsFile, TimedRows, TimeOrder, write_rejects
from aiowheel.recipes._idle_trace import idle_events


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The paths of the results, and the timeout in the unit of the rows."""

    out: Path
    rejects: Path | None
    timeout: int


def run_files(
    files: Sequence[str],
    options: FileOptions,
    table: TableOptions,
    open_session: OpenSession | None,
    *,
    as_json: bool,
) -> None:
    """Find the idle events of *files*, write them, and print a report.

    If an error is raised, the result file is unchanged.

    Args:
        files: The paths as given.
        options: The paths of the results, and the timeout.
        table: The options on columns and times.
        open_session: Opens a Spark session; None for the wheel.
        as_json: Print JSON instead of a table.

    Raises:
        BadInputError: The input cannot be used.
        MissingExtraError: The Spark engine lacks PySpark or Java.
        AiowheelError: A file cannot be written, or Spark fails.
    """
    started = clock.perf_counter()
    check_destination(options.out, or_stdout=True)
    if options.out == STANDARD_OUTPUT and as_json:
        raise BadInputError("--json is not for --out -: both print on standard output")
    outputs = {"--out": options.out}
    if options.rejects is not None:
        check_destination(options.rejects, "--rejects")
        if options.rejects.resolve() == options.out.resolve():
            raise BadInputError(f"--rejects must be another file than --out, got {options.rejects}")
        outputs["--rejects"] = options.rejects
    inputs = Inputs(files, table.format)
    read = {path.resolve() for path in inputs.paths}
    for option, path in outputs.items():
        if path.resolve() in read:
            raise BadInputError(f"{option} must be another file than the inputs, got {path}")
    with ExitStack() as stack:
        rejects = stack.enter_context(write_rejects(options.rejects)) if options.rejects else None
        rows = table.rows(inputs, options.timeout, rejects)
        progress = stack.enter_context(Progress())
        run = IdleRun(inputs, rows, rejects, options.timeout, options.out, progress)
        summary, keys = run.on_spark(open_session) if open_session else run.on_wheel()
    print_remarks(rows)
    report = IdleReport(
        engine=Engine.SPARK if open_session else Engine.WHEEL,
        unit=table.unit,
        timeout=options.timeout,
        files=rows.files,
        rows_read=rows.accepted + rows.rejected,
        rows=rows.accepted,
        rejected=rows.rejected,
        irregular=rows.irregular,
        keys=keys,
        idle_events=summary.events,
        first=summary.first,
        last=summary.last,
        sha256=summary.sha256,
        out=str(options.out),
        seconds=round(clock.perf_counter() - started, 3),
    )
    print_report(report, as_json=as_json)


@dataclass(frozen=True, slots=True)
class IdleRun:
    """One run over complete inputs.

    Attributes:
        inputs: The files of *rows*.
        rows: The rows, not read yet; counts rejected and irregular rows.
        rejects: The file to which *rows* writes rejected and irregular rows, or None.
        timeout: Timeout in the unit of the rows.
        out: Path of the result file.
        progress: Shows the progress.
    """

    inputs: Inputs
    rows: TimedRows
    rejects: RejectsFile | None
    timeout: int
    out: Path
    progress: Progress

    def on_wheel(self) -> tuple[IdleSummary, int]:
        """Sort the rows on disk, and replay them on a wheel.

        Returns:
            The summary of the file, and the number of distinct keys among the rows.

        Raises:
            BadInputError: The input cannot be used; the file is unchanged.
            AiowheelError: A file cannot be written; the result file is unchanged.
        """
        try:
            with TimeOrder() as order:
                for batch in self._batches():
                    order.add(batch)
                keys = order.distinct_keys()  # fails on a full disk before the file is replaced
                self._sync_rejects()
                replay = self.progress.each(order, "replaying", self.rows.accepted)
                return write_idle_events(idle_events(replay, self.timeout), self.out), keys
        except sqlite3.Error as error:
            raise AiowheelError(f"sorting on disk failed: {error}") from error

    def _sync_rejects(self) -> None:
        """Let a full disk refuse the rejects before the result file is replaced."""
        if self.rejects is not None:
            self.rejects.sync()

    def _batches(self) -> Iterator[Batch]:
        """Yield the batches of the rows, and show the bytes read so far."""
        for batch in self.rows.batches():
            self.progress.show("reading", self.inputs.bytes_read, self.inputs.total_bytes)
            yield batch

    def on_spark(self, open_session: OpenSession) -> tuple[IdleSummary, int]:
        """Read, search and sort in parallel on Spark; then merge the sorted parts into the file.

        Spark's workers write the parts to a hidden folder beside the file, so that a cluster needs
        a shared disk there.

        Raises:
            MissingExtraError: PySpark or Java is missing.
            BadInputError, AiowheelError: As `on_wheel`; or an input is a pipe, or Spark fails.
        """
        refuse_pipes(self.inputs.paths)
        try:
            from aiowheel.cli._idle_columns import write_idle_columns
            from aiowheel.jobs.idle.batch import find_idle, tasks_for
            from aiowheel.jobs.idle.parquet_touches import ParquetTouches, key_that_spark_reads
            from aiowheel.jobs.idle.piece_touches import PieceTouches
        except ImportError as error:
            raise MissingExtraError("spark") from error
        from aiowheel.jobs.spark.java import find_java

        find_java()  # report a missing Java before Spark's slow start
        rows, paths = self.rows, self.inputs.paths
        key = key_that_spark_reads(paths, rows.key, rows.time)
        parts = self.out.with_name(hidden_name())
        self.progress.show("starting Spark")
        try:
            with open_session() as spark, self.progress.tasks_of(spark, "idle"):
                touches = (
                    ParquetTouches.of(spark, paths, key, rows)
                    if key and rows.reads_whole_numbers
                    else PieceTouches.of(spark, self.inputs, rows)
                )
                tasks = tasks_for(touches.size, spark.sparkContext.defaultParallelism)
                with touches.reader_errors(rows):
                    found = find_idle(touches.rows, self.timeout, parts, tasks)
                rows.take_over(touches.found(found))
            self._sync_rejects()
            self.progress.show("writing")
            return write_idle_columns(found.batches(), self.out), found.count_keys()
        finally:
            shutil.rmtree(parts, ignore_errors=True)
