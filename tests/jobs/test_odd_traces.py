"""Unusual files of a trace: Python and Spark read and reject the same rows."""

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aiowheel.cli import run
from aiowheel.errors import BadInputError
from aiowheel.jobs.operations.files import Rejects, read_events, read_operations, write_rejects
from aiowheel.jobs.operations.in_process import run_replay
from aiowheel.jobs.schemas import EVENTS, OPERATIONS, OUTCOMES, REJECTS
from aiowheel.readers import Format

from .conftest import assert_nothing_lost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Nothing = Callable[[str, Path, pytest.CaptureFixture[str]], None]

ODD_EVENTS = [
    b'[{"key": "a", "time": 1}, {"key": "b", "time": 2}]',
    b"[]",
    b'[{"key": "c", "time": 3}, {"key": "d", "time": "x"}]',
    b'[{"key": "e", "time": 4}, 5]',
    b'[{"time": 6}]',
    b'[["a"]]',
    b'{"key": 1.50, "time": 7}',
    b'{"key": true, "time": 8}',
    b'{"key": 12345678901234567890, "time": 8}',
    b"{'key': 'f', 'time': 9}",
    b'{"key": NaN, "time": 9}',
    b'{"key": "g\\ud800", "time": 10}',
    b'{"key": "g\\ud83d\\ude00", "time": 10}',
    b'{"key": "h\xff", "time": 11}',
    b'{"key": "h\xed\xa0\x80\xc3", "time": 11}',
    "{'key': 'é\u2028', 'time': 11}".encode(),
    b'{"key": {"of": "a"}, "time": 12}',
    b'{"key": ["a"], "time": 12}',
    b'{"key": "n\\u0000", "time": 13}',
    b'{"key": "n\x00", "time": 13}',
    b'{"key": "n", \x00"time": 13}',
    b'{"key": "t", "time": 1.0}',
    b'{"key": "t", "time": 1e3}',
    b'{"key": "t", "time": 9223372036854775808}',
    b'{"key": "t", "time": -1, "value": -1}',
    b'{"key": "t", "time": true}',
    b'{"key": "t", "time": 14} {"key": "u", "time": 14}',
    b'{"key": "t", "time": 14}, {"key": "u", "time": 14}',
    b'{"key": "t", "time": 14}][',
    b'{"key": "t", "time": 14,}',
    b'{"key": "t", "time": 014}',
    b'{"key": "t", "time": 15',
    b'{"key": "t", "key": "twice", "time": 16}',
    b'{"key": "t", "key": null, "time": 16}',
    b'{"Key": "t", "time": 16}',
    b'  {"key": "blank", "time": 17, "more": {"of": [{}]}} \t',
    b"\xef\xbb\xbf{}",
    b'"text"',
    b"null",
    b"\\",
    b"   ",
    b"",
]
ODD_OPERATIONS = [
    b'{"id": "a", "keys": ["a"], "created": 1, "deadline": 50}',
    b'{"id": "b", "keys": ["a"], "created": 1.5}',
    b'{"id": "b", "keys": ["a"], "created": 1, "deadline": -5}',
    b'{"id": "b", "keys": "a", "created": 1}',
    b'{"id": "b", "keys": [["a"]], "created": 1}',
    b'{"id": "b", "keys": [{"of": "a"}], "created": 1}',
    b'{"id": "b", "keys": [null], "created": 1}',
    b'{"id": "c", "keys": [1, "a"], "thresholds": [], "created": 1}',
    b'{"id": "b", "keys": ["a"], "thresholds": [1.5], "created": 1}',
    b'{"id": "b", "keys": ["a"], "thresholds": ["1"], "created": 1}',
    b'{"id": "b", "keys": ["a", "b"], "thresholds": [1], "created": 1}',
    b'{"id": "b", "keys": ["a", "a"], "created": 1}',
    b'{"id": "b", "keys": ["a"], "mode": 1, "created": 1}',
    b'{"keys": ["a"], "created": 1}',
    b'{"id": "b", "keys": ["a"]}',
    b'{"id": "b", "keys": ["a"], "created": "1"}',
]
CSV_EVENTS = [
    b"key,time,value",
    b"a,1,",
    b"key,time,value",
    b'"b",2,""',
    b'"b,""c""",2,3',
    b'"open,2,',
    b'a"b,3,',
    b'"a"b,3,',
    b"a,1.0,",
    b"a,1e3,",
    b"a,-1,-1",
    b"a, 1,",
    b"a,1",
    b"a,1,,",
    b"n\x00,1,",
    b"\xff,1,",
    b"\xc3\xa9,1,",
    b"a,9223372036854775808,",
    "a,\u0661,".encode(),
    b",,",
    b"\t",
    b"",
    b"last,5,",
]
CSV_OPERATIONS = [
    b"id,keys,thresholds,mode,created,deadline",
    b"a,a,,,1,50",
    b"b,a|b,1|,all,1,",
    b'"c","a|b","1",all,1,',
    b"c,|,,any,1,",
    b"c,a|a,,any,1,",
    b"c,a,one,any,1,",
    b"c,a,,some,1,",
    b"c,a,,any,-1,",
    b"c,a,,any,1,-5",
    b"c,a,,any,1.0,",
    b"c,[[a]],,any,1,2",
]


def write_lines(folder: Path, form: Format) -> tuple[int, int]:
    """Write odd lines of operations and events; also as UTF-16, gzipped, with other line ends.

    Returns the number of rows in both tables.
    """
    tables = (ODD_OPERATIONS, ODD_EVENTS)
    if form is Format.CSV:
        tables = (CSV_OPERATIONS, CSV_EVENTS)
    for name, lines in zip(("ops", "events"), tables, strict=True):
        (folder / name).mkdir()
        whole = b"\n".join(lines)
        (folder / name / f"0.{form}").write_bytes(whole)
    first = b"key,time,value\r" if form is Format.CSV else b""
    rows = b"z,1,\rbad\r\nz,2,\r" if form is Format.CSV else b'{"key":"z","time":1}\r1\r\n'
    (folder / "events" / f"a b+c%41é.{form}").write_bytes(b"\xef\xbb\xbf" + first + rows)
    (folder / "events" / f"zipped.{form}.gz").write_bytes(gzip.compress(first + rows))
    (folder / "events" / f"empty.{form}").write_bytes(b"")
    if form is Format.NDJSON:
        text = '{"key": "w", "time": 1}\n{"key": "w", "time": 1}\n'
        (folder / "events" / "utf16.ndjson").write_bytes(b"\xff\xfe" + text.encode("utf-16-le"))
    return len(list((folder / "ops").iterdir())), len(list((folder / "events").iterdir()))


def write_parquet(folder: Path) -> None:
    """Write unusual rows of Parquet; some parts have no rows."""
    for name in ("ops", "events"):
        (folder / name).mkdir()
    texts = [
        b"a",
        b"",
        None,
        b"h\xff\x1f",
        b"\xed\xa0\x80",
        b'q"\\\n\x00\x1f',
        "é\u2028😀".encode(),
    ]
    times = [1, None, -1, 2**62, 5]
    pairs = [(text, time) for text in texts for time in times]
    keys = pa.array([text for text, _ in pairs], pa.binary())
    events = {"key": as_text(keys), "time": pa.array([time for _, time in pairs], pa.int64())}
    pq.write_table(pa.table(events), folder / "events" / "0.parquet")
    narrow = {
        "key": pa.array(["n", "n"]).dictionary_encode(),
        "time": pa.array([1, -1], pa.int32()),
    }
    pq.write_table(pa.table(narrow), folder / "events" / "1 +.parquet")
    pq.write_table(pa.table({"key": [], "time": []}), folder / "events" / "none.parquet")
    rows = [
        (id_, keys, thresholds, mode, created, deadline)
        for id_, created in ((b"x", 1), (b"\xff", 1), (None, 1), (b"y", -1), (b"z", None))
        for keys in ([b"a"], [b"a", b"a"], [b"\xc3", b"\xa9"], [b"q\x01\\", None], [], None)
        for thresholds in (None, [], [None, 1])
        for mode, deadline in ((None, 9), (b"all", None), (b"\xff", -1))
    ]
    columns = [list(column) for column in zip(*rows, strict=True)]
    columns[0] = [id_ and id_ + str(place).encode() for place, id_ in enumerate(columns[0])]
    texts_of = pa.list_(pa.binary())
    listed = pa.array(columns[1], texts_of)
    operations = {
        "id": as_text(pa.array(columns[0], pa.binary())),
        "keys": pa.ListArray.from_arrays(
            listed.offsets, as_text(listed.values), mask=listed.is_null()
        ),
        "thresholds": pa.array(columns[2], pa.list_(pa.int64())),
        "mode": as_text(pa.array(columns[3], pa.binary())),
        "created": pa.array(columns[4], pa.int64()),
        "deadline": pa.array(columns[5], pa.int64()),
        "more": pa.array(range(len(rows))),
    }
    pq.write_table(pa.table(operations), folder / "ops" / "0.parquet")
    bare = {"id": ["bare"], "keys": [["a"]], "thresholds": [None], "mode": [None]}
    pq.write_table(pa.table(bare | {"created": [1]}), folder / "ops" / "1.parquet")


def as_text(values: Any) -> pa.StringArray:
    """Return bytes as Parquet text, which need not be valid UTF-8."""
    return pa.Array.from_buffers(
        pa.string(), len(values), values.buffers(), values.null_count, values.offset
    )


def tables_in(out: Path) -> tuple[list[Any], list[Any]]:
    """Return outcomes and rejects, sorted."""
    from aiowheel.jobs.spark.sinks import read_folder

    outcomes = read_folder(out / "outcomes", OUTCOMES)
    rejects = read_folder(out / "rejects", REJECTS)
    rejects.validate(full=True)  # checks that the texts are UTF-8
    return tuple(
        sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)
        for table in (outcomes, rejects)
    )  # type: ignore[return-value]


@pytest.mark.parametrize("form", [Format.NDJSON, Format.CSV, Format.PARQUET], ids=str)
@pytest.mark.spark
@pytest.mark.slow
def test_both_engines_reject_the_same_rows(
    form: Format, tmp_path: Path, spark: "SparkSession"
) -> None:
    """Files, reasons and texts of rejects are equal, and so are the accepted rows.

    The session takes the keywords of ANSI SQL, such as the column time, as reserved.
    """
    from aiowheel.jobs.operations.batch import run_purgatory
    from aiowheel.jobs.spark.session import changed_settings

    if form is Format.PARQUET:
        write_parquet(tmp_path)
    else:
        write_lines(tmp_path, form)
    tables = tmp_path / "ops", tmp_path / "events"
    rejected: Rejects = []
    used = [*read_operations(tables[0], form, rejected), *read_events(tables[1], form, rejected)]
    rows = len(used) + len(rejected)

    by_wheel = run_replay(*tables, tmp_path / "wheel", 1, form)
    with changed_settings(spark, {"spark.sql.ansi.enforceReservedKeywords": "true"}):
        by_spark = run_purgatory(spark, *tables, tmp_path / "spark", 1, form)

    assert by_wheel == by_spark
    assert_nothing_lost(asdict(by_wheel), tmp_path / "wheel", rows)
    assert_nothing_lost(asdict(by_spark), tmp_path / "spark", rows)
    assert tables_in(tmp_path / "spark") == tables_in(tmp_path / "wheel")
    assert by_wheel.rejected >= 20
    assert by_wheel.completed >= 1


@pytest.mark.spark
@pytest.mark.slow
def test_a_folder_is_read_at_any_depth_by_both(tmp_path: Path, spark: "SparkSession") -> None:
    """Spark by itself would skip files in subfolders, and derive columns from day=1."""
    from aiowheel.jobs.operations import frames
    from aiowheel.jobs.spark.sources import Source

    for number, place in enumerate(("", "sub/deep", "day=1", "_hidden")):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        row = f'{{"key": "{number}", "time": 1}}\n'
        (tmp_path / place / f"{number}.ndjson").write_text(row)

    used = {event.key for event in read_events(tmp_path, Format.NDJSON, [])}

    rows = frames.read_events(spark, Source(str(tmp_path), Format.NDJSON)).collect()
    assert {row.key for row in rows} == used == {"0", "1", "2"}


def test_views_of_texts_are_texts(tmp_path: Path) -> None:
    """Tools that work in memory with views of texts name that type in their files."""
    keys = pa.array(["k", "é"]).cast(pa.string_view())
    pq.write_table(pa.table({"key": keys, "time": [1, 2]}), tmp_path / "events.parquet")
    rejected: Rejects = []

    found = list(read_events(tmp_path / "events.parquet", Format.PARQUET, rejected))

    assert ([(event.key, event.time) for event in found], rejected) == ([("k", 1), ("é", 2)], [])


def test_invalid_utf8_is_rejected_and_can_be_written(tmp_path: Path) -> None:
    """If invalid bytes were replaced, two keys could become equal; a table of rejects is UTF-8."""
    (tmp_path / "events.ndjson").write_bytes(b"\xff\xfe\n")
    (tmp_path / "events.csv").write_bytes(b"key,time,value\n\xff,x,\n\xff,1,\n")
    rejected: Rejects = []

    assert list(read_events(tmp_path / "events.ndjson", Format.NDJSON, rejected)) == []
    assert list(read_events(tmp_path / "events.csv", Format.CSV, rejected)) == []

    write_rejects(tmp_path / "rejects.parquet", rejected)
    assert pq.read_table(tmp_path / "rejects.parquet").column("raw").to_pylist() == [
        "\ufffd\ufffd",
        "\ufffd,x,",
        "\ufffd,1,",
    ]


def test_a_row_of_a_csv_ends_with_its_line(tmp_path: Path) -> None:
    """An unclosed quote affects no other row; a field may be long."""
    file = tmp_path / "events.csv"
    file.write_text(f'key,time,value\n"open,1,\n{"k" * 200_000},1,\n"a,b",2,\n')
    rejected: Rejects = []

    events = list(read_events(file, Format.CSV, rejected))

    assert [event.key for event in events] == ["k" * 200_000, "a,b"]
    assert [raw for _, _, raw in rejected] == ['"open,1,']


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    """The error names the file and the reason."""
    file = tmp_path / "events.ndjson.gz"
    file.write_bytes(gzip.compress(b'{"key": "a", "time": 1}\n')[:-9])

    with pytest.raises(BadInputError, match=r"events\.ndjson\.gz: the compressed data ends too"):
        list(read_events(file, Format.NDJSON, []))


@pytest.mark.linux
def test_a_path_that_arrow_cannot_open_is_refused(tmp_path: Path) -> None:
    """Arrow takes paths in UTF-8 only."""
    file = tmp_path / os.fsdecode(b"\xff.parquet")
    file.write_bytes(b"")

    with pytest.raises(BadInputError, match=r"\.parquet: the path must be UTF-8"):
        list(read_events(file, Format.PARQUET, []))


def damaged_page(file: Path) -> None:
    """Write a file with an intact footer and a damaged page."""
    table = pa.table({"key": [f"k{n % 977}-{n}" for n in range(20_000)], "time": range(20_000)})
    pq.write_table(table, file, compression="snappy", use_dictionary=False)
    data = bytearray(file.read_bytes())
    data[2_000:2_400] = bytes(byte ^ 0xFF for byte in data[2_000:2_400])
    file.write_bytes(data)


def damaged_name(file: Path) -> None:
    """Write a file with a column whose name is not UTF-8."""
    columns = {"key": ["a"], "time": [1], "\u00e9": [1]}
    pq.write_table(pa.table(columns), file, store_schema=False)
    file.write_bytes(file.read_bytes().replace("\u00e9".encode(), b"\xff\xfe"))


BAD_FILES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "truncated gz": (
        "1.ndjson.gz",
        lambda file: file.write_bytes(gzip.compress(os.urandom(9_000))[:-9]),
        "",
    ),
    "random Parquet": ("1.parquet", lambda file: file.write_bytes(os.urandom(500)), "Parquet"),
    "empty Parquet": ("1.parquet", lambda file: file.write_bytes(b""), "Parquet file size is 0"),
    "damaged page": ("1.parquet", damaged_page, ""),
    "damaged name": ("1.parquet", damaged_name, ""),
    "float times": (
        "1.parquet",
        lambda file: pq.write_table(pa.table({"key": ["a"], "time": [1.5]}), file),
        "column time must be int64, got double",
    ),
    "text for a time": (
        "1.parquet",
        lambda file: pq.write_table(pa.table({"key": ["a"], "time": ["1"]}), file),
        "column time must be int64, got string",
    ),
    "a column twice": (
        "1.parquet",
        lambda file: pq.write_table(
            pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], ["key", "KEY"]), file
        ),
        "must have one column key, got key, KEY",
    ),
    "no header": (
        "1.csv",
        lambda file: file.write_text("a,1,\n"),
        "line 1 must be the columns key,time,value, got a,1,",
    ),
    "another header": (
        "1.csv",
        lambda file: file.write_text("key,key,time\na,1,\n"),
        "line 1 must be the columns key,time,value, got key,key,time",
    ),
}


def refused(bad: str, engine: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check for exit code 2, one line that names the file, and an unchanged earlier result."""
    name, write, reason = BAD_FILES[bad]
    (folder / "events").mkdir(exist_ok=True)
    write(folder / "events" / name)
    (folder / "ops.ndjson").write_text('{"id": "x", "keys": ["a"], "created": 1}\n')
    (folder / "out" / "outcomes").mkdir(parents=True, exist_ok=True)
    (folder / "out" / "outcomes" / "earlier.parquet").touch()

    arguments = [str(folder / "ops.ndjson"), str(folder / "events"), "--out", str(folder / "out")]
    assert run(["purgatory", *arguments, "--engine", engine]) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert f"{folder / 'events' / name}: " in line
    assert reason in line
    assert "Py4J" not in line
    assert [path.name for path in folder.glob("out/**/*")] == ["outcomes", "earlier.parquet"]


@pytest.mark.parametrize("bad", BAD_FILES)
def test_a_bad_file_is_named(bad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The wheel engine names the file."""
    refused(bad, "wheel", tmp_path, capsys)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.usefixtures("one_session")
@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(bad, marks=[pytest.mark.thorough] if bad == "no header" else [])
        for bad in BAD_FILES
    ],
)
def test_spark_names_a_bad_file(
    bad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The text is that of the wheel engine, unless Spark finds the error."""
    refused(bad, "spark", tmp_path, capsys)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("bad", ["truncated gz", "damaged page"])
def test_no_setting_lets_spark_skip_a_bad_file(
    bad: str, spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Clusters may set it for other jobs; here the rows of the file would be missing silently."""
    assert bad in BAD_FILES
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        refused(bad, "spark", tmp_path, capsys)
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("0.tgz", "0.tgz: .*reads no archives"),
        ("0.csv", "the name of a gzipped file must end in .gz for Spark, got .*0.csv"),
    ],
)
def test_compression_that_spark_would_misread_is_refused(
    name: str, reason: str, tmp_path: Path, spark: "SparkSession"
) -> None:
    """One process detects gzip by the content, Spark by the name, and would read no lines."""
    from aiowheel.jobs.operations import frames
    from aiowheel.jobs.spark.sources import Source

    (tmp_path / name).write_bytes(gzip.compress(b"key,time,value\n"))

    with pytest.raises(BadInputError, match=reason):
        frames.read_events(spark, Source(str(tmp_path), Format.CSV))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("form", [Format.NDJSON, Format.PARQUET])
def test_a_name_that_spark_skips_is_refused(
    form: Format, tmp_path: Path, spark: "SparkSession"
) -> None:
    """Of a file that the user names, Spark would read no row."""
    from aiowheel.jobs.operations import frames
    from aiowheel.jobs.spark.sources import Source

    file = tmp_path / f"_events.{form}"
    if form is Format.PARQUET:
        pq.write_table(pa.table({"key": ["a"], "time": [1]}), file)
    else:
        file.write_text('{"key": "a", "time": 1}\n')

    with pytest.raises(BadInputError, match="Spark skips names with a leading"):
        frames.read_events(spark, Source(str(file), form))


def run_over(
    folder: Path, engine: str, form: str, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """Run over the folders of operations and events; return the report of the successful run."""
    arguments = [str(folder / "ops"), str(folder / "events"), "--out", str(folder / "out")]
    code = run(["purgatory", *arguments, "--engine", engine, "--format", form, "--json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    report: dict[str, Any] = json.loads(printed.out)
    return report


def nothing_from_parquet(engine: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Use tables without rows, as one file or as parts written by Spark, also with other parts."""
    for table, schema in (("ops", OPERATIONS), ("events", EVENTS)):
        (folder / table).mkdir()
        pq.write_table(schema.empty_table(), folder / table / "0.parquet")
    report = run_over(folder, engine, "parquet", capsys)
    assert_nothing_lost(report, folder / "out", 0)
    (found,) = (folder / "out" / "outcomes").glob("*.parquet")
    assert pq.read_schema(found).names == OUTCOMES.names
    assert not (folder / "out" / "rejects").exists()

    row = {"id": "x", "keys": ["a"], "created": 1}
    pq.write_table(pa.Table.from_pylist([row]), folder / "ops" / "1.parquet")
    report = run_over(folder, engine, "parquet", capsys)
    assert_nothing_lost(report, folder / "out", 1)
    assert report["pending"] == 1


def nothing_from_text(engine: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Use files with only a header, and files without a line."""
    for table in ("ops", "events"):
        (folder / table).mkdir()
    for form, text in (("csv", ",".join(OPERATIONS.names) + "\n"), ("ndjson", "")):
        (folder / "ops" / f"0.{form}").write_text(text)
        (folder / "events" / f"0.{form}").write_text("")
        assert_nothing_lost(run_over(folder, engine, form, capsys), folder / "out", 0)
        assert list((folder / "out" / "outcomes").glob("*.parquet"))
        (folder / "ops" / f"0.{form}").unlink()
        (folder / "events" / f"0.{form}").unlink()


@pytest.mark.parametrize("nothing", [nothing_from_parquet, nothing_from_text])
def test_tables_without_rows_have_an_empty_result(
    nothing: Nothing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The wheel engine writes empty tables."""
    nothing("wheel", tmp_path, capsys)


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.usefixtures("one_session")
@pytest.mark.parametrize("nothing", [nothing_from_parquet, nothing_from_text])
def test_tables_without_rows_have_an_empty_result_on_spark(
    nothing: Nothing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The Spark engine writes empty tables."""
    nothing("spark", tmp_path, capsys)


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.slow
def test_a_column_may_be_named_by_a_keyword(tmp_path: Path, spark: "SparkSession") -> None:
    """With this setting, `time` is a keyword of SQL."""
    from aiowheel.jobs.spark.session import changed_settings

    write_parquet(tmp_path)
    command = ["purgatory", str(tmp_path / "ops"), str(tmp_path / "events"), "--engine", "spark"]

    with changed_settings(spark, {"spark.sql.ansi.enforceReservedKeywords": "true"}):
        assert run([*command, "--out", str(tmp_path / "out")]) == 0


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "before"),
    [
        ("query", "true"),
        pytest.param("stream", None, marks=pytest.mark.thorough),
        pytest.param("query", None, marks=pytest.mark.thorough),
        pytest.param("stream", "true", marks=pytest.mark.thorough),
    ],
)
def test_a_run_restores_the_settings_of_its_session(
    mode: str, before: str | None, tmp_path: Path, spark: "SparkSession"
) -> None:
    """With its own reader of lists, Spark fails on a file without any threshold."""
    names = [
        "spark.sql.parquet.enableNestedColumnVectorizedReader",
        "spark.sql.inMemoryColumnarStorage.compressed",
    ]
    (tmp_path / "ops").mkdir()
    (tmp_path / "events").mkdir()
    operation = {"id": "x", "keys": ["a"], "thresholds": [None], "created": 1}
    table = pa.Table.from_pylist([operation], OPERATIONS)
    pq.write_table(table, tmp_path / "ops" / "0.parquet")
    pq.write_table(pa.table({"key": ["a"], "time": [2]}), tmp_path / "events" / "0.parquet")
    for name in names:
        spark.conf.unset(name)
        if before is not None:
            spark.conf.set(name, before)

    command = ["purgatory", *(str(tmp_path / name) for name in ("ops", "events"))]
    command += ["--engine", "spark"] if mode == "query" else ["--stream", "--once", "--shards", "1"]
    code = run([*command, "--out", str(tmp_path / "out")])

    after = [spark.conf.get(name, None) for name in names]
    for name in names:
        spark.conf.unset(name)
    assert (code, after) == (0, [before, before])
