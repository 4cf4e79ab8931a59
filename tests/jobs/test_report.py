"""The report job on ten operations whose numbers are known."""

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aiowheel.errors import BadInputError
from aiowheel.trace import TRACE_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aiowheel.jobs.report.job import ReportResult

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MS = 1_000_000
START = 1_800_000_000_000_000_000  # a whole second, ns
EXPIRES_AFTER = 100 * MS


def row(number: int, outcome: str, waited: int, *keys: str, **more: Any) -> dict[str, Any]:
    """Return one operation, created *number* tenths of a second after the start."""
    created = START + number * 100 * MS
    deadline = created + EXPIRES_AFTER
    finished = created + waited
    return {
        "run_id": "r",
        "purgatory": "fetch",
        "operation_id": number,
        "kind": "Fetch",
        "keys": list(keys),
        "created": created,
        "deadline": deadline,
        "finished": finished,
        "outcome": outcome,
        "completed_by": keys[0] if outcome == "completed" else None,
        "lateness": finished - deadline if outcome == "expired" else None,
        "checks": 2,
    } | more


ROWS = [
    row(0, "completed", 10 * MS, "a", "b"),
    row(1, "completed", 20 * MS, "a"),
    row(2, "completed", 30 * MS, "a", "a"),  # the key 1 and the key "1", for example
    row(3, "completed", 40 * MS, "b"),
    row(4, "expired", 100 * MS, "a", "c"),
    row(5, "expired", 100 * MS + 1_500, "c"),
    row(6, "expired", 103 * MS, "c"),
    row(7, "cancelled", 5 * MS, "b"),
    row(8, "expired", 60 * MS, "b"),  # its purgatory was closed 40 ms before the deadline
    row(0, "failed", 7 * MS, "z", purgatory="wait", kind="Ack", deadline=None),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a trace in two files, and an incomplete file of a crash."""
    folder = tmp_path_factory.mktemp("trace")
    for number, rows in enumerate((ROWS[:4], ROWS[4:])):
        table = pa.Table.from_pylist(rows, TRACE_SCHEMA)
        pq.write_table(table, folder / f"trace-r-{number}.parquet")
    (folder / ".trace-r-2.parquet.tmp").write_bytes(b"PAR1")
    return folder


@pytest.fixture(scope="module")
def report(
    folder: Path, spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory
) -> "ReportResult":
    """Return the report on the trace."""
    from aiowheel.jobs.report.job import run_report

    out = tmp_path_factory.mktemp("out") / "report"
    return run_report(folder, f"file://{out}", spark)


def rows_of(report: "ReportResult", table: str) -> list[tuple[Any, ...]]:
    """Return a table of the report as plain tuples."""
    return [tuple(row.values()) for row in report.tables[table].to_pylist()]


def test_outcomes_are_counted(report: "ReportResult") -> None:
    """Counts per purgatory and kind: operations, completed, expired, cancelled, failed, early."""
    assert report.operations == 10
    assert rows_of(report, "outcomes") == [
        ("fetch", "Fetch", 9, 4, 4, 1, 0, 1, 4 / 9),
        ("wait", "Ack", 1, 0, 0, 0, 1, 0, 0.0),
    ]


def test_early_counts_what_closing_ended(spark: "SparkSession") -> None:
    """An operation that expired without a deadline, or before it, did not time out."""
    from aiowheel.jobs.report.tables import outcomes

    rows = [
        row(0, "expired", 100 * MS, "a"),
        row(1, "expired", 60 * MS, "a"),
        row(2, "expired", 60 * MS, "a", deadline=None, lateness=None),
        row(3, "completed", 60 * MS, "a", deadline=None),
    ]
    trace = spark.createDataFrame(pa.Table.from_pylist(rows, TRACE_SCHEMA))

    (counted,) = outcomes(trace).collect()
    assert (counted["operations"], counted["expired"], counted["early"]) == (4, 3, 2)


def test_completion_times_are_those_of_completed_operations(report: "ReportResult") -> None:
    """Quantiles are values of completed operations only."""
    assert rows_of(report, "completion_quantiles") == [
        ("fetch", "Fetch", 4, 20 * MS, 40 * MS, 40 * MS, 40 * MS, 40 * MS)
    ]
    assert rows_of(report, "completion_histogram") == [
        ("fetch", "Fetch", 10 * MS, 20 * MS, 1),
        ("fetch", "Fetch", 20 * MS, 50 * MS, 3),
    ]


def test_lateness_is_that_of_timeouts(report: "ReportResult") -> None:
    """An operation that expired early because of closing is not late."""
    assert rows_of(report, "lateness_quantiles") == [
        ("fetch", "Fetch", 3, 1_500, 3 * MS, 3 * MS, 3 * MS, 3 * MS)
    ]
    assert rows_of(report, "lateness_histogram") == [
        ("fetch", "Fetch", 0, 1_000, 1),
        ("fetch", "Fetch", 1_000, 2_000, 1),
        ("fetch", "Fetch", 2 * MS, 5 * MS, 1),
    ]


def test_a_completion_before_its_begin_is_counted(spark: "SparkSession", tmp_path: Path) -> None:
    """The clock of another program may step back."""
    from aiowheel.jobs.report.tables import completion_histogram

    rows = [row(0, "completed", -5 * MS, "a")]
    trace = spark.createDataFrame(pa.Table.from_pylist(rows, TRACE_SCHEMA).to_pandas())

    assert [each["operations"] for each in completion_histogram(trace).collect()] == [1]


def test_timeouts_are_counted_over_time(report: "ReportResult") -> None:
    """Buckets begin at multiples of their width, and count by the end of operations."""
    # From 7 ms to 860 ms after the start: 853 ms, in buckets of 20 ms.
    width = 20 * MS
    table = rows_of(report, "timeouts_over_time")

    assert table[0] == ("fetch", "Fetch", START, width, 1, 0, 0.0)
    assert table[4] == ("fetch", "Fetch", START + 500 * MS, width, 1, 1, 1.0)
    assert table[-1] == ("wait", "Ack", START, width, 1, 0, 0.0)
    assert sum(row[4] for row in table) == 10
    assert sum(row[5] for row in table) == 4


def test_hot_keys_are_ranked(report: "ReportResult") -> None:
    """An operation counts once for each of its keys; equal counts are sorted by the key's text."""
    assert rows_of(report, "hot_keys") == [
        ("fetch", 1, "a", 4, 1, 0.25),
        ("fetch", 2, "b", 4, 1, 0.25),
        ("fetch", 3, "c", 3, 3, 1.0),
        ("wait", 1, "z", 1, 0, 0.0),
    ]


def test_the_worst_are_the_latest(report: "ReportResult") -> None:
    """At most five per purgatory and kind, by lateness; then by waiting time."""
    worst = [
        (row[0], row[2], row[4], row[7], row[8]) for row in rows_of(report, "worst_operations")
    ]

    assert worst == [
        ("fetch", 1, 6, 103 * MS, 3 * MS),
        ("fetch", 2, 5, 100 * MS + 1_500, 1_500),
        ("fetch", 3, 4, 100 * MS, 0),
        ("fetch", 4, 8, 60 * MS, -40 * MS),
        ("fetch", 5, 3, 40 * MS, None),
        ("wait", 1, 0, 7 * MS, None),
    ]


def test_the_tables_are_saved(report: "ReportResult") -> None:
    """Each table is a Parquet file equal to the result, and no other file is left."""
    saved = {path.stem: pq.read_table(path) for path in report.folder.glob("*.parquet")}

    assert saved.keys() == report.tables.keys()
    assert all(saved[name].equals(table) for name, table in report.tables.items())
    suffixes = sorted(path.suffix for path in report.folder.iterdir())
    assert suffixes == [".html", *[".parquet"] * 8, ".png"]


def test_the_picture_is_a_png(report: "ReportResult") -> None:
    """The PNG opens, and has more than one colour."""
    from matplotlib.image import imread

    assert report.picture is not None
    pixels = imread(report.picture)

    assert pixels.shape[0] > 800
    assert pixels.min() < pixels.max()


def test_the_key_tables_are_printed(report: "ReportResult") -> None:
    """The console shows formatted counts and spans, and unescaped keys."""
    from io import StringIO

    from rich.console import Console

    from aiowheel.jobs.report.text import print_report

    screen = StringIO()
    print_report(report.tables, Console(file=screen, width=120))

    assert "44.44 %" in screen.getvalue()
    assert "1.5 µs" in screen.getvalue()
    assert "How late the timeouts came" in screen.getvalue()


def test_a_trace_without_operations_is_reported(spark: "SparkSession", tmp_path: Path) -> None:
    """A trace without rows is legal: the tables are empty, and the picture has a text."""
    from aiowheel.jobs.report.job import run_report

    pq.write_table(TRACE_SCHEMA.empty_table(), tmp_path / "trace-r-1.parquet")

    result = run_report(tmp_path, tmp_path / "report", spark)

    assert result.operations == 0
    assert {table.num_rows for table in result.tables.values()} == {0}
    assert "The trace holds no operation." in result.page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "files",
    [
        [{}, {"checks": pa.int64(), "operation_id": pa.int32()}],
        [{"checks": pa.int64(), "operation_id": pa.int16()}, {}],
        [{"checks": pa.uint8(), "operation_id": pa.uint32()}, {"operation_id": pa.int8()}, {}],
    ],
)
def test_another_program_may_change_the_widths_of_integers(
    files: list[dict[str, pa.DataType]], spark: "SparkSession", tmp_path: Path
) -> None:
    """Some store small numbers in fewer bytes, others every number in eight."""
    from aiowheel.jobs.report.job import read_trace_frame

    for nth, types in enumerate(files):
        table = pa.Table.from_pylist([row | {"run_id": f"r{nth}"} for row in ROWS], TRACE_SCHEMA)
        for name, kind in types.items():
            changed = pa.field(name, kind)
            at = table.schema.get_field_index(name)
            table = table.set_column(at, changed, table[name].cast(kind))
        pq.write_table(table, tmp_path / f"trace-{nth}.parquet")

    frame = read_trace_frame(tmp_path, spark)

    found = frame.orderBy("run_id", "purgatory", "operation_id").toArrow()
    expected = [row | {"run_id": f"r{nth}"} for nth in range(len(files)) for row in ROWS]
    assert found.to_pylist() == expected
    assert dict(frame.dtypes)["created"] == "bigint"
    assert dict(frame.dtypes)["checks"] == "int"


def test_quantiles_are_exact_up_to_10_000_operations(spark: "SparkSession", tmp_path: Path) -> None:
    """Waits of 1 to 9,999 ns, in any order and in several files."""
    from aiowheel.jobs.report.job import read_trace_frame
    from aiowheel.jobs.report.tables import completion_quantiles

    waits = list(range(1, 10_000))
    random.Random(1).shuffle(waits)
    for nth in range(3):
        rows = [row(number, "completed", waits[number], "a") for number in range(nth, 9_999, 3)]
        pq.write_table(pa.Table.from_pylist(rows, TRACE_SCHEMA), tmp_path / f"trace-{nth}.parquet")

    (found,) = completion_quantiles(read_trace_frame(tmp_path, spark)).collect()

    wanted = {"p50_ns": 5_000, "p90_ns": 9_000, "p99_ns": 9_900, "p999_ns": 9_990}
    assert {name: found[name] for name in wanted} == wanted


def test_the_types_of_the_tables_do_not_depend_on_the_session(
    spark: "SparkSession", report: "ReportResult", tmp_path: Path
) -> None:
    """A session with `useLargeVarTypes` would give texts another type of Arrow."""
    from aiowheel.jobs.report.job import run_report
    from aiowheel.jobs.spark.session import changed_settings

    pq.write_table(pa.Table.from_pylist(ROWS, TRACE_SCHEMA), tmp_path / "trace-1.parquet")

    with changed_settings(spark, {"spark.sql.execution.arrow.useLargeVarTypes": "true"}):
        found = run_report(tmp_path, tmp_path / "report", spark)

    assert found.tables == report.tables


def test_missing_keys_are_no_keys(spark: "SparkSession", tmp_path: Path) -> None:
    """Another program may write null for a list without elements."""
    from aiowheel.jobs.report.job import run_report

    table = pa.Table.from_pylist(ROWS, TRACE_SCHEMA)
    keys = pa.array([None if row["keys"] == ["b"] else row["keys"] for row in ROWS])
    table = table.set_column(table.schema.get_field_index("keys"), "keys", keys)
    pq.write_table(table, tmp_path / "trace-0.parquet")

    report = run_report(tmp_path, tmp_path / "report", spark)

    assert report.operations == len(ROWS)
    worst = report.tables["worst_operations"].to_pylist()
    assert [row["keys"] for row in worst if row["operation_id"] == 8] == [[]]


def test_the_report_is_on_this_machine(
    report: "ReportResult",
    folder: Path,
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An address elsewhere would become the name of a folder here."""
    from aiowheel.jobs.report.job import run_report

    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInputError, match="must be a path on this machine, got 's3a://b/report'"):
        run_report(folder, "s3a://b/report", spark)
    assert list(tmp_path.iterdir()) == []

    assert report.folder.name == "report"  # the fixture gives a URI of this machine
    assert report.page == report.folder / "report.html"
    assert report.page.exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "no trace file"),
        (b"not parquet at all", "trace-x.parquet: not a Parquet file, or damaged"),
        ("table", "trace-x.parquet: not a trace: no column 'purgatory'"),
    ],
)
def test_a_folder_without_a_trace_is_refused(
    spark: "SparkSession", tmp_path: Path, content: bytes | str | None, reason: str
) -> None:
    """The error names the file and the reason, and no report is written."""
    from aiowheel.jobs.report.job import run_report

    file = tmp_path / "trace-x.parquet"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content:
        pq.write_table(pa.table({"run_id": ["r"]}), file)

    with pytest.raises(BadInputError, match=reason):
        run_report(tmp_path, tmp_path / "report", spark)

    assert not (tmp_path / "report").exists()
