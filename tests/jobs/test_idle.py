"""Idle detection on real data by both engines, compared with the reference facts."""

import json
import os
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from aiowheel.cli import run
from aiowheel.cli._idle_file import IdleSummary, write_idle_events
from aiowheel.readers import Batch, Inputs, TimedRows, TimeFormat, TimeOrder, Unit, time_parser
from aiowheel.recipes._idle_trace import idle_events

from .conftest import FACTS

pytestmark = pytest.mark.one_build

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class View(NamedTuple):
    """A data set with one of its key columns: its files, and its number of rows."""

    file: str
    key: str
    time: str
    unit: Unit
    rows: int
    rejected: int
    keys: int


SPANS = "nezha-trainticket/nezha-trainticket-traces.tar.gz"
LOGS = "nezha-trainticket/nezha-trainticket-logs.tar.gz"
NASA = "nasa-http-1995-08-01/nasa_19950801.tsv.gz"
VIEWS = {
    "nasa": View(NASA, "host", "time", Unit.S, 30_969, 0, 2_365),
    "trace": View(SPANS, "TraceID", "StartTimeUnixNano", Unit.NS, 508_018, 0, 6_958),
    "pod": View(SPANS, "PodName", "StartTimeUnixNano", Unit.NS, 508_018, 0, 56),
    "logpod": View(LOGS, "PodName", "TimeUnixNano", Unit.NS, 267_301, 124, 54),
}
ODD_LOGS = {  # with negative times; the last one has the row of ten fields
    "09_21_log.csv",
    "09_34_log.csv",
    "09_35_log.csv",
    "10_06_log.csv",
}
LARGE = {"trace", "pod"}  # half a million rows each
REPEATED = {("logpod", 30), ("logpod", 1800)}  # the same rows as with 300 seconds
each_fact = pytest.mark.parametrize(
    ("name", "seconds", "events", "sha256"),
    [
        pytest.param(
            *fact,
            id=f"{fact[0]}-{fact[1]}",
            marks=[pytest.mark.thorough] if fact[0] in LARGE or fact[:2] in REPEATED else [],
        )
        for fact in FACTS
    ],
)


def _marks_on_spark(name: str, seconds: int) -> list[pytest.MarkDecorator]:
    if name != "nasa":  # the other views have ten times as many rows
        return [pytest.mark.spark_cluster]
    return [] if seconds == 300 else [pytest.mark.thorough]


each_fact_on_spark = pytest.mark.parametrize(
    ("name", "seconds", "events", "sha256"),
    [
        pytest.param(
            *fact,
            id=f"{fact[0]}-{fact[1]}",
            marks=_marks_on_spark(*fact[:2]),
        )
        for fact in FACTS
    ],
)

ReadView = Callable[[str], tuple[TimedRows, list[Batch]]]
WheelFile = Callable[[str, int], tuple[IdleSummary, Path]]


@pytest.fixture(scope="module")
def read_view(data_folder: Path) -> ReadView:
    """Read each view at most once per run."""
    cache: dict[str, tuple[TimedRows, list[Batch]]] = {}

    def read(name: str) -> tuple[TimedRows, list[Batch]]:
        if name not in cache:
            view = VIEWS[name]
            rows = table_of(view, Inputs([str(data_folder / view.file)]))
            cache[name] = rows, list(rows.batches())
        return cache[name]

    return read


@pytest.fixture(scope="module")
def wheel_file(read_view: ReadView, tmp_path_factory: pytest.TempPathFactory) -> WheelFile:
    """Write the wheel's result for each view at most once per run."""
    cache: dict[tuple[str, int], tuple[IdleSummary, Path]] = {}
    folder = tmp_path_factory.mktemp("wheel")

    def write(name: str, seconds: int) -> tuple[IdleSummary, Path]:
        if (name, seconds) not in cache:
            file = folder / f"{name}-{seconds}.csv"
            with TimeOrder() as order:
                for batch in read_view(name)[1]:
                    order.add(batch)
                events = idle_events(order, ticks(name, seconds))
                cache[name, seconds] = write_idle_events(events, file), file
        return cache[name, seconds]

    return write


@pytest.fixture(scope="module")
def spark_rows(
    data_folder: Path, spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], "DataFrame"]:
    """Let Spark's workers read each view at most once per run."""
    from aiowheel.jobs.idle.piece_touches import PieceTouches

    folder = tmp_path_factory.mktemp("spark")

    def read(name: str) -> "DataFrame":
        place, view = folder / name, VIEWS[name]
        if not place.exists():
            inputs = Inputs([str(data_folder / view.file)])
            touches = PieceTouches.of(spark, inputs, table_of(view, inputs))
            touches.rows.write.parquet(str(place))
        return spark.read.parquet(str(place))

    return read


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "nasa" else [pytest.mark.thorough]) for name in VIEWS],
)
def test_rows_are_read_and_rejected_as_in_the_facts(name: str, read_view: ReadView) -> None:
    """The 124 log rows with negative times are rejected; the row with ten fields is used."""
    rows, batches = read_view(name)
    view = VIEWS[name]

    assert (rows.accepted, rows.rejected) == (view.rows, view.rejected)
    assert rows.irregular == (1 if name == "logpod" else 0)
    assert sum(len(batch.times) for batch in batches) == view.rows


@pytest.mark.slow
@each_fact
def test_the_wheel_finds_the_idle_events_of_the_facts(
    name: str, seconds: int, events: int, sha256: str, wheel_file: WheelFile
) -> None:
    """Count and digest equal those of the facts."""
    summary, _ = wheel_file(name, seconds)

    assert (summary.events, summary.sha256) == (events, sha256)


@pytest.mark.spark
@pytest.mark.slow
@each_fact_on_spark
def test_spark_writes_the_same_file_as_the_wheel(
    name: str,
    seconds: int,
    events: int,
    sha256: str,
    wheel_file: WheelFile,
    spark_rows: Callable[[str], "DataFrame"],
    tmp_path: Path,
) -> None:
    """Count and digest equal those of the facts, and the two files are equal byte for byte."""
    from aiowheel.cli._idle_columns import write_idle_columns
    from aiowheel.jobs.idle.batch import find_idle

    found = find_idle(spark_rows(name), ticks(name, seconds), tmp_path / "events", tasks=3)

    summary = write_idle_columns(found.batches(), tmp_path / "idle.csv")

    by_wheel, file = wheel_file(name, seconds)
    assert (summary.events, summary.sha256, found.count_keys()) == (
        events,
        sha256,
        VIEWS[name].keys,
    )
    assert summary == by_wheel
    assert (tmp_path / "idle.csv").read_bytes() == file.read_bytes()


@pytest.mark.spark
@pytest.mark.slow
def test_the_engines_agree_on_awkward_rows(spark: "SparkSession", tmp_path: Path) -> None:
    """Ties, repeats, shuffled rows, and keys with commas, quotes and non-ASCII characters."""
    from aiowheel.cli._idle_columns import write_idle_columns
    from aiowheel.jobs.idle.batch import find_idle

    source = random.Random(7)
    keys = [
        " ",
        ",",
        '"',
        "a\nb",
        "A",
        "a",
        "\t",
        "\r",
        "\0",
        "é",
        "\uffff",
        "\U00010000",
        "z" * 300,
    ]
    rows = [(source.randrange(2000) * 5, source.choice(keys)) for _ in range(5_000)]

    found = find_idle(spark.createDataFrame(rows, "t long, key string"), 25, tmp_path / "events", 4)
    by_columns = write_idle_columns(found.batches(), tmp_path / "columns.csv")

    by_spark, by_wheel = list(found), list(idle_events(sorted(rows), 25))
    by_events = write_idle_events(by_wheel, tmp_path / "events.csv")
    assert len(by_spark) > len(keys)
    assert by_spark == by_wheel
    assert by_columns == by_events
    assert (tmp_path / "columns.csv").read_bytes() == (tmp_path / "events.csv").read_bytes()


@pytest.mark.spark
@pytest.mark.slow
def test_text_and_parquet_are_shuffled_once(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows are shuffled by key; the events are neither sorted globally nor sampled."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    from aiowheel.jobs.idle.batch import sorted_events
    from aiowheel.jobs.idle.parquet_touches import ParquetTouches
    from aiowheel.jobs.idle.piece_touches import PieceTouches

    pq.write_table(pa.table({"key": ["k"], "t": [1]}), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("key,t\nk,1\n")
    text, parquet = Inputs([str(tmp_path / "a.csv")]), Inputs([str(tmp_path / "a.parquet")])
    view = View("", "key", "t", Unit.S, 1, 0, 1)
    for rows in (
        PieceTouches.of(spark, text, table_of(view, text)).rows,
        ParquetTouches.of(spark, parquet.paths, "key", table_of(view, parquet)).rows,
    ):
        sorted_events(rows, 30, 3).explain()

        assert capsys.readouterr().out.count("Exchange") == 1


@pytest.fixture(scope="module")
def odd_logs(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write an archive of the logs in `ODD_LOGS`."""
    file = tmp_path_factory.mktemp("odd") / "logs.tar.gz"
    with tarfile.open(data_folder / LOGS) as whole, tarfile.open(file, "w:gz") as part:
        while len(part.getmembers()) < len(ODD_LOGS):
            member = whole.next()
            assert member is not None
            if Path(member.name).name in ODD_LOGS:
                part.addfile(member, whole.extractfile(member))
    return file


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("part", ["odd", pytest.param("all", marks=pytest.mark.thorough)])
def test_the_command_runs_either_engine(
    part: str,
    data_folder: Path,
    odd_logs: Path,
    one_session: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The reports differ only in the engine's name and the time taken.

    The logs have late rows, bad rows and nanoseconds; count and digest of all logs equal those of
    the facts.
    """
    logs = odd_logs if part == "odd" else data_folder / LOGS
    arguments = ["idle", str(logs), "--key", "PodName", "--time", "TimeUnixNano"]
    arguments += ["--unit", "ns", "--timeout", "300", "--json", "--out", str(tmp_path / "idle.csv")]
    reports: list[dict[str, object]] = []

    for engine in ("wheel", "spark"):
        assert run([*arguments, "--engine", engine]) == 0
        printed = capsys.readouterr()
        reports.append(json.loads(printed.out))
        assert "10_06_log.csv: line 631: 10 fields where the header has 8" in printed.err

    different = {name for name, value in reports[0].items() if reports[1][name] != value}
    assert different == {"engine", "seconds"}
    counts = (3_678, 45) if part == "odd" else (267_301, 124)
    assert (reports[0]["rows"], reports[0]["rejected"]) == counts
    if part == "all":
        found = ("logpod", 300, reports[0]["idle_events"], reports[0]["sha256"])
        assert found in FACTS


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_missing_parts_fail_the_run(
    form: str,
    one_session: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An executor may write to its own disk; the result of the earlier run stays."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrameWriter

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.csv").write_text("k,t\na,1\nb,2\nb,50\n")
    if form == "parquet":
        (tmp_path / "in" / "0.csv").unlink()
        table = pa.table({"k": ["a", "b", "b"], "t": [1, 2, 50]})
        pq.write_table(table, tmp_path / "in" / "0.parquet")
    (tmp_path / "idle.csv").write_text("earlier")
    write_parts = DataFrameWriter.parquet

    def lose_all_parts(writer: DataFrameWriter, path: str) -> None:
        write_parts(writer, path)
        for part in Path(path.removeprefix("file:")).glob("part-*"):
            part.unlink()

    monkeypatch.setattr(DataFrameWriter, "parquet", lose_all_parts)
    arguments = ["idle", str(tmp_path / "in"), "--key", "k", "--time", "t", "--timeout", "30"]

    code = run([*arguments, "--engine", "spark", "--out", str(tmp_path / "idle.csv")])

    printed = capsys.readouterr()
    assert (code, printed.out) == (1, "")
    assert "rows were written, 0 can be read back: driver and executors must share" in printed.err
    assert (tmp_path / "idle.csv").read_text() == "earlier"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["idle.csv", "in"]


@pytest.mark.spark
@pytest.mark.slow
def test_a_run_after_a_killed_one_succeeds(
    one_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The killed run leaves its parts, and in a container both runs have the same process id."""
    (tmp_path / "in.csv").write_text("k,t\na,1\n")
    out = tmp_path / "idle.csv"
    arguments = ["idle", str(tmp_path / "in.csv"), "--key", "k", "--time", "t", "--timeout", "30"]
    arguments += ["--engine", "spark", "--out", str(out)]

    with monkeypatch.context() as killed:
        killed.setattr("aiowheel.cli._idle_run.shutil.rmtree", lambda *_, **__: None)
        run(arguments)
    out.unlink()

    assert run(arguments) == 0
    assert out.read_text() == "fire,key\n31,a\n"


@pytest.mark.spark
@pytest.mark.slow
def test_spark_reads_parquet_itself_by_the_same_rules(
    one_session: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Files, counts and rejects are the same for both engines."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    source, keys = random.Random(7), ["a", 'b, "c"', "", None, "é"]
    times = [source.choice([None, -7, 99, source.randrange(100, 2_000) * 5]) for _ in range(2_000)]
    columns = {"key": [source.choice(keys) for _ in times], "t": times}
    for number in range(2):
        pq.write_table(pa.table(columns), tmp_path / f"{number} é.parquet")
    results: list[tuple[bytes, list[str], dict[str, object]]] = []

    for engine in ("wheel", "spark"):
        arguments = ["idle", *map(str, sorted(tmp_path.glob("*.parquet")))]
        arguments += ["--key", "key", "--time", "t", "--timeout", "30", "--earliest", "100"]
        arguments += ["--latest", "9000", "--rejects", str(tmp_path / "bad.csv"), "--json"]
        assert run([*arguments, "--out", str(tmp_path / "idle.csv"), "--engine", engine]) == 0
        report = json.loads(capsys.readouterr().out)
        del report["engine"], report["seconds"]
        bad = (tmp_path / "bad.csv").read_text().splitlines()
        results.append(((tmp_path / "idle.csv").read_bytes(), bad, report))

    assert results[0] == results[1]
    assert len(results[0][1]) == 1 + int(str(results[0][2]["rejected"]))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        "written in seconds",
        "odd files",
        "a colon",
        pytest.param("a name of bytes", marks=pytest.mark.linux),
        "a hidden name",
        "a column of metadata",
        "a file of bad rows",
        "other columns that spark cannot read",
    ],
)
def test_both_engines_read_parquet_that_spark_would_misread(
    case: str,
    one_session: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Times in seconds, names like patterns, differing types in files, and bytes for a text."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    offsets, data = pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff")
    no_utf8 = pa.Array.from_buffers(pa.string(), 2, [None, offsets, data])
    pq.write_table(pa.table({"key": no_utf8, "t": [1, 5]}), "in/0.parquet")
    if case == "odd files":
        pq.write_table(pa.table({"key": [1, 2], "t": pa.array([1, 5], pa.int32())}), "in/a.parquet")
        pq.write_table(pa.table({"key": ["a"], "KEY": ["b"], "t": [9]}), "in/b[1].parquet")
    if case == "a colon":
        Path("in/0.parquet").unlink()
        pq.write_table(pa.table({"key": ["a"], "t": [9]}), "in/12:30.parquet")
    if case == "a name of bytes":
        Path("in/0.parquet").rename(os.fsdecode(b"in/\xff.parquet"))
    if case == "a hidden name":
        pq.write_table(pa.table({"key": ["h"], "t": [9]}), "_hidden.parquet")
        Path("in/1.parquet").symlink_to(Path("_hidden.parquet").absolute())
    if case == "a column of metadata":
        pq.write_table(pa.table({"key": ["a"], "t": [9], "_metadata": ["m"]}), "in/0.parquet")
    if case == "a file of bad rows":
        pq.write_table(pa.table({"key": ["", "b"], "t": [1, -5]}), "in/1.parquet")
    if case == "other columns that spark cannot read":
        others = {"ns": pa.array([1], pa.timestamp("ns")), "half": pa.array([1.5], pa.float16())}
        columns = {"key": ["a"], "t": pa.array([7], pa.int16()), **others}
        pq.write_table(pa.table(columns), "in/0.parquet")
    written = ["--time-format", "decimal"] if case == "written in seconds" else []
    results: list[tuple[int, str, bytes]] = []

    for engine in ("wheel", "spark"):
        arguments = ["idle", "in", "--key", "key", "--time", "t", "--timeout", "1", "--unit", "ms"]
        arguments += [*written, "--out", "idle.csv", "--engine", engine]
        code = run(arguments)
        idle = Path("idle.csv")
        errors = capsys.readouterr().err.partition(" (2 rejected")[0]
        results.append((code, errors, idle.read_bytes() if idle.exists() else b""))

    assert results[0] == results[1]
    assert results[0][0] == (2 if case == "a file of bad rows" else 0)


def table_of(view: View, inputs: Inputs) -> TimedRows:
    """Return the rows of a view."""
    return TimedRows(
        inputs, key=view.key, time=view.time, parse_time=time_parser(TimeFormat.EPOCH, view.unit)
    )


def ticks(name: str, seconds: int) -> int:
    """Return a timeout in the unit of a view."""
    return seconds * int(10 ** VIEWS[name].unit.digits)


@pytest.mark.spark
@pytest.mark.slow
def test_spark_may_name_its_files_otherwise(spark: "SparkSession", tmp_path: Path) -> None:
    """A setting of Hadoop names the files that Spark writes."""
    from aiowheel.jobs.spark.session import changed_settings

    (tmp_path / "in.csv").write_text("k,t\na,1\nb,2\nb,50\n")
    command = ["idle", str(tmp_path / "in.csv"), "--key", "k", "--time", "t", "--timeout", "30"]
    command += ["--engine", "spark", "--out", str(tmp_path / "idle.csv")]

    with changed_settings(spark, {"mapreduce.output.basename": "_events"}):
        assert run(command) == 0

    assert (tmp_path / "idle.csv").read_text() == "fire,key\n31,a\n32,b\n80,b\n"
