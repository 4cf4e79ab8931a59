"""What `aiowheel idle` shows: bars on stderr, then a table or JSON on stdout. Rank 5."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Self, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress as Bars

from aiowheel._printable import printable
from aiowheel.cli._destination import STANDARD_OUTPUT
from aiowheel.cli._job_output import print_json, print_lines
from aiowheel.readers import Batch, Inputs, TimedRows

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class IdleReport:
    """The result of one run; times are integers of ``unit``.

    Attributes:
        engine: "wheel" or "spark".
        unit: The unit of every time here and in the file.
        timeout: In that unit.
        files: Tables read, members of archives each on its own.
        rows_read: Rows seen, good and bad.
        rows: Rows used.
        rejected: Rows left out.
        irregular: Rows used although their number of fields was wrong.
        keys: Distinct keys among the rows used.
        idle_events: Lines of the file, its header aside.
        first: The first three events, fire and key.
        last: The last three.
        sha256: Digest of the lines ``fire<TAB>key<LF>``.
        out: Where the file is.
        seconds: How long the run took.
    """

    engine: str
    unit: str
    timeout: int
    files: int
    rows_read: int
    rows: int
    rejected: int
    irregular: int
    keys: int
    idle_events: int
    first: tuple[tuple[int, str], ...]
    last: tuple[tuple[int, str], ...]
    sha256: str
    out: str
    seconds: float


class Progress:
    """Bars on stderr while a run lasts; nothing where stderr is no terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._bars = Bars(console=console, transient=True, disable=not console.is_terminal)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._bars.stop()

    def reading(self, inputs: Inputs, rows: TimedRows) -> Iterator[Batch]:
        """Pass the batches of *rows* on, showing the bytes taken from the disk."""
        bar = self._bars.add_task("reading", total=inputs.total_bytes)
        for batch in rows.batches():
            self._bars.update(bar, completed=inputs.bytes_read)
            yield batch
        self._bars.update(bar, completed=inputs.total_bytes)

    def walking(self, items: Iterable[T], what: str, total: int) -> Iterable[T]:
        """Pass *items* on, counting them; costs nothing where nothing is shown."""
        return items if self._bars.disable else self._bars.track(items, total, description=what)

    def waiting(self, what: str) -> None:
        """Show that work of unknown length goes on, instead of what was shown before."""
        for task in self._bars.task_ids:
            self._bars.remove_task(task)
        self._bars.add_task(escape(printable(what)), total=None)  # it may name a folder


def print_remarks(rows: TimedRows) -> None:
    """Name on stderr the first of the rows that were rejected or irregular."""
    for count, what, named in (
        (rows.rejected, "rejected", rows.rejects),
        (rows.irregular, "irregular, used all the same", rows.irregularities),
    ):
        if count:
            shown = f", the first {len(named)}:" if count > len(named) else ":"
            noun = "row" if count == 1 else "rows"
            print(f"aiowheel: {count:,} {noun} {what}{shown}", file=sys.stderr)
            for remark in named:
                print(f"  {printable(remark)}", file=sys.stderr)


def print_report(report: IdleReport, *, as_json: bool) -> None:
    """Print the report: JSON, a table for a terminal, or plain lines for a pipe.

    It goes to stdout, or to stderr where stdout has taken the idle events.
    """
    if as_json:
        print_json(asdict(report))
    else:
        print_lines(_lines(report), to_stderr=report.out == str(STANDARD_OUTPUT))


def _lines(report: IdleReport) -> list[tuple[str, str]]:
    lines = [
        ("engine", report.engine),
        ("timeout", f"{report.timeout:,} {report.unit}"),
        ("files", f"{report.files:,}"),
        ("rows read", f"{report.rows_read:,}"),
        ("rows used", f"{report.rows:,}"),
        ("rejected", f"{report.rejected:,}"),
        ("irregular", f"{report.irregular:,}"),
        ("keys", f"{report.keys:,}"),
        ("idle events", f"{report.idle_events:,}"),
    ]
    lines += [("first", f"{fire} {key}") for fire, key in report.first]
    lines += [("last", f"{fire} {key}") for fire, key in report.last]
    lines += [
        ("sha256", report.sha256),
        ("written to", report.out),
        ("took", f"{report.seconds:.1f} s"),
    ]
    return lines
