"""What `aiowheel idle` prints at its end: a table or JSON on stdout. Rank 5."""

import sys
from dataclasses import asdict, dataclass

from aiowheel._printable import printable
from aiowheel.cli._destination import STANDARD_OUTPUT
from aiowheel.cli._job_output import print_json, print_lines
from aiowheel.readers import TimedRows


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
