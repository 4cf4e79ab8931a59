"""The report that `aiowheel idle` prints at its end, as a table or JSON. Rank 5."""

import sys
from dataclasses import asdict, dataclass

from aiowheel._printable import cut, printable
from aiowheel.cli._destination import STANDARD_OUTPUT
from aiowheel.cli._job_output import print_json, print_lines
from aiowheel.readers import TimedRows


@dataclass(frozen=True, slots=True)
class IdleReport:
    """The result of one run; times are integers of ``unit``.

    Attributes:
        engine: "wheel" or "spark".
        unit: Unit of all times, here and in the file.
        timeout: Timeout in that unit.
        files: Number of tables read; each member of an archive counts as one.
        rows_read: Number of rows read, good and bad.
        rows: Number of rows used.
        rejected: Number of rows left out.
        irregular: Number of rows used although their number of fields was wrong.
        keys: Number of distinct keys among the rows used.
        idle_events: Number of events in the file.
        first: The first three events, as time and key.
        last: The last three events.
        sha256: SHA-256 of the lines ``fire<TAB>key<LF>``.
        out: Path of the file.
        seconds: Duration of the run.
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


def print_remarks(rows: TimedRows) -> None:
    """Print the first rejected rows and the first irregular rows on stderr."""
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

    The report goes to stdout, or to stderr if the idle events go to stdout.
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
    for name, events in (("first", report.first), ("last", report.last)):
        lines += [(name, f"{fire} {cut(key)}") for fire, key in events]
    lines += [
        ("sha256", report.sha256),
        ("written to", report.out),
        ("took", f"{report.seconds:.1f} s"),
    ]
    return lines
