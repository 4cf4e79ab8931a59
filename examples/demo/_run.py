"""The demo: its parts in order, and their checks."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiowheel.errors import AiowheelError, BadInputError
from aiowheel.readers import Format, Inputs

from ._checks import check, crowd_sums, hold_sums, outcome_sums, trace_outcomes
from ._crowd import CrowdResult, run_crowd
from ._hold import HoldResult, run_hold
from ._log import TIMEOUT, find_idle_hosts
from ._plan import CrowdPlan, HoldPlan
from ._report import make_report, report_outcomes
from ._screen import Screen, ShowDone
from ._story import tell_crowd, tell_hold

if TYPE_CHECKING:
    from aiowheel.jobs.report.job import ReportResult

#: The name of a file that a demo leaves in its folder: later demos may replace the folder's files.
_MARK = ".aiowheel-demo"


@dataclass(frozen=True)
class DemoResult:
    """The results of the demo; None for a part that was left out.

    Attributes:
        log: Result of `aiowheel idle --json` on the user's log; None without --json.
        crowd: Result of part 1.
        hold: Result of part 2.
        report: Result of part 3.
        seconds: Duration of each part, by its name.
    """

    log: Any
    crowd: CrowdResult
    hold: HoldResult
    report: ReportResult | None
    seconds: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        """Return all results as a JSON object."""
        report = self.report
        return {
            "log": self.log,
            "crowd": dataclasses.asdict(self.crowd),
            "hold": dataclasses.asdict(self.hold),
            "report": None
            if report is None
            else {
                "folder": str(report.folder),
                "picture": str(report.picture),
                "operations": report.operations,
                "tables": {name: table.to_pylist() for name, table in report.tables.items()},
            },
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
        }


class DemoRun:
    """One run of the demo."""

    def __init__(self, crowd: CrowdPlan, hold: HoldPlan, folder: Path, screen: Screen) -> None:
        self._crowd_plan = crowd
        self._hold_plan = hold
        self._folder = folder
        self._trace_folder = folder / "trace"
        self._screen = screen
        self._seconds: dict[str, float] = {}

    def run(self, log: str | None, *, with_spark: bool, as_json: bool) -> DemoResult:
        """Run the parts in order, and check the numbers of each.

        Args:
            log: Path of the user's access log, or None.
            with_spark: Whether part 3 runs.
            as_json: Whether to return the result on *log* instead of printing it.

        Raises:
            BadInputError: The folder has files that no demo has written, or the log cannot be read.
            AiowheelError: A part failed, or its sums do not agree.
        """
        if log is not None:
            Inputs([log], Format.CLF)  # raises for a missing file, before anything is written
        _claim(self._folder)
        # The log comes first: a bad log is reported at once, and the earlier results stay.
        idle_hosts = None if log is None else self._search_log(log, as_json=as_json)
        _clear(self._trace_folder)
        crowd = self._run_crowd()
        hold = self._run_hold()
        check(outcome_sums("the trace", trace_outcomes(self._trace_folder), crowd, hold))
        report = self._run_report(crowd, hold) if with_spark else None
        self._say_where(report, with_log=log is not None)
        return DemoResult(idle_hosts, crowd, hold, report, self._seconds)

    def _search_log(self, log: str, *, as_json: bool) -> Any:
        self._screen.heading(f"Your access log: hosts without a request for over {TIMEOUT:g} s")
        return find_idle_hosts(log, self._folder / "idle.csv", as_json=as_json)

    def _run_crowd(self) -> CrowdResult:
        plan = self._crowd_plan
        self._screen.heading(f"Part 1: {plan.clients:,} HTTP clients wait for news")
        with self._working("clients", "part 1: serving the clients") as progress:
            result = run_crowd(plan, self._trace_folder, progress)
        check(crowd_sums(result))
        self._screen.paragraph(tell_crowd(result, plan))
        return result

    def _run_hold(self) -> HoldResult:
        plan = self._hold_plan
        self._screen.heading(f"Part 2: {plan.operations:,} operations at once")
        with self._working("operations", "part 2: finishing the operations") as progress:
            result = run_hold(plan, self._trace_folder, progress)
        check(hold_sums(result))
        self._screen.paragraph(tell_hold(result, plan))
        return result

    def _run_report(self, crowd: CrowdResult, hold: HoldResult) -> ReportResult:
        from aiowheel.jobs.report.text import print_report

        self._screen.heading("Part 3: Spark reports on what was recorded")
        with self._working("report", "part 3: Spark starts, then analyses the trace"):
            result = make_report(self._trace_folder, self._folder / "report")
        check(outcome_sums("the report", report_outcomes(result), crowd, hold))
        self._screen.paragraph(
            f"Parts 1 and 2 recorded each of their {result.operations:,} operations in a Parquet "
            "trace; Spark read it and found the same numbers. A timeout never comes early; the "
            "tables say how late it came."
        )
        print_report(result.tables, self._screen.console)
        return result

    @contextlib.contextmanager
    def _working(self, part: str, what: str) -> Generator[ShowDone, None, None]:
        started = time.monotonic()
        with self._screen.working(what) as progress:
            yield progress
        self._seconds[part] = time.monotonic() - started

    def _say_where(self, report: ReportResult | None, *, with_log: bool) -> None:
        screen = self._screen
        screen.heading("The files")
        if with_log:
            screen.line(f"idle hosts  {self._folder / 'idle.csv'}")
        screen.line(f"trace       {self._trace_folder}")
        if report is None:
            screen.line("report      left out, because of --no-spark")
        else:
            screen.line(f"tables      {report.folder}")
            screen.line(f"picture     {report.picture}")


def _claim(folder: Path) -> None:
    """Create the folder; refuse one that has files of others, which the demo might replace."""
    mark = folder / _MARK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_others = any(folder.iterdir()) and not mark.exists()
        if not is_others:
            mark.write_text("aiowheel demo replaces the files of this folder.\n")
    except OSError as error:
        raise AiowheelError(f"{error.filename}: {error.strerror}") from error
    if is_others:
        raise BadInputError(
            f"--out must be a new or an empty folder, or that of an earlier demo, got {folder}: "
            "the demo would replace files in it"
        )


def _clear(trace_folder: Path) -> None:
    """Create the folder, and remove the trace of an earlier demo from it."""
    try:
        trace_folder.mkdir(exist_ok=True)
        for pattern in ("trace-*.parquet", ".trace-*.parquet.tmp"):
            for file in trace_folder.glob(pattern):
                file.unlink()
    except OSError as error:
        raise AiowheelError(f"{trace_folder}: {error.strerror}") from error
