"""Files of a trace: Python and Spark accept and reject the same rows."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aiowheel.errors import BadInputError
from aiowheel.jobs.operations.files import (
    Rejects,
    format_of_trace,
    read_events,
    read_operations,
    write_events,
    write_operations,
)
from aiowheel.jobs.schemas import EVENTS, OPERATIONS, Flaw
from aiowheel.readers import LATEST_TIME, Format
from aiowheel.rules import NEVER, NO_VALUE, Event, Operation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GOOD = {"id": "x", "keys": ["a"], "created": 7}
#: Invalid rows, each with its flaw.
BAD_OPERATIONS: list[tuple[dict[str, Any], Flaw]] = [
    (GOOD | {"id": ""}, Flaw.ID),
    (GOOD | {"id": None}, Flaw.ID),
    (GOOD | {"keys": []}, Flaw.KEYS),
    (GOOD | {"keys": None}, Flaw.KEYS),
    (GOOD | {"keys": ["a", ""]}, Flaw.KEYS),
    (GOOD | {"keys": ["a", "b", "a"]}, Flaw.REPEATED),
    (GOOD | {"keys": ["a", "b"], "thresholds": [1]}, Flaw.THRESHOLDS),
    (GOOD | {"mode": "some"}, Flaw.MODE),
    (GOOD | {"created": None}, Flaw.CREATED),
    (GOOD | {"created": -6_795_364_578_871_345_152}, Flaw.CREATED),
    (GOOD | {"created": LATEST_TIME + 1}, Flaw.CREATED),
    (GOOD | {"deadline": -1}, Flaw.DEADLINE),
    (GOOD | {"deadline": LATEST_TIME + 1}, Flaw.DEADLINE),
]
BAD_EVENTS: list[tuple[dict[str, Any], Flaw]] = [
    ({"key": "", "time": 1}, Flaw.KEY),
    ({"key": None, "time": 1}, Flaw.KEY),
    ({"key": "a", "time": None}, Flaw.TIME),
    ({"key": "a", "time": -1}, Flaw.TIME),
    ({"key": "a", "time": LATEST_TIME + 1}, Flaw.TIME),
]
#: Lines of text that are not rows of the tables.
BROKEN_JSON = [
    "not json",
    "[1]",
    '{"id": "x", "keys": "a", "created": 7}',
    '{"id": "x", "keys": ["a"], "created": "7"}',
    '{"id": "x", "keys": ["a"], "cre',
]
BROKEN_CSV = ["x,a,,any,7", "x,a,,any,7,,", "x,a,,any,seven,", "x,a,one,any,7,", "x,a,,any,7,1.5"]

USED = [
    Operation("x", ("a",), (NO_VALUE,), 1, 7, NEVER),
    Operation("y", ("a", "b"), (5, NO_VALUE), 2, 0, LATEST_TIME),
    Operation("3", ("é",), (-2,), 1, LATEST_TIME, 0),
]
HAPPENED = [Event("a", 0, NO_VALUE), Event("b", LATEST_TIME, -9), Event("5", 1, 0)]


def write_parquet(folder: Path) -> None:
    """Write good and bad rows as Parquet."""
    write_operations(folder / "ops" / "0.parquet", USED)
    write_events(folder / "events" / "0.parquet", HAPPENED)
    for table, schema, rows in (
        ("ops", OPERATIONS, BAD_OPERATIONS),
        ("events", EVENTS, BAD_EVENTS),
    ):
        loose = pa.schema([field.with_nullable(True) for field in schema])
        bad = pa.Table.from_pylist([row for row, _ in rows], loose)
        pq.write_table(bad, folder / table / "1.parquet")


def write_ndjson(folder: Path) -> None:
    """Write the same as JSON, one row per line; ids and keys may be numbers."""
    used = [
        {"id": "x", "keys": ["a"], "created": 7},
        {"id": "y", "keys": ["a", "b"], "thresholds": [5, None], "mode": "all", "created": 0}
        | {"deadline": LATEST_TIME, "more": 1},
        {"id": 3, "keys": ["é"], "thresholds": [-2], "created": LATEST_TIME, "deadline": 0},
    ]
    happened = [
        {"key": "a", "time": 0},
        {"key": "b", "time": LATEST_TIME, "value": -9},
        {"key": 5, "time": 1, "value": 0},
    ]
    operations = [json.dumps(row) for row in [*used, *(row for row, _ in BAD_OPERATIONS)]]
    events = [json.dumps(row) for row in [*happened, *(row for row, _ in BAD_EVENTS)]]
    (folder / "ops" / "0.ndjson").write_text("\n".join([*operations, "", *BROKEN_JSON]))
    (folder / "events" / "0.ndjson").write_text("\n".join(events))


def write_csv(folder: Path) -> None:
    """Write the same as CSV, in which lists are joined by bars."""
    header = ",".join(OPERATIONS.names)
    used = ["x,a,,,7,", f"y,a|b,5|,all,0,{LATEST_TIME}", f"3,é,-2,any,{LATEST_TIME},0"]
    bad = [_csv_line(row, OPERATIONS.names) for row, _ in BAD_OPERATIONS]
    (folder / "ops" / "0.csv").write_text("\n".join([header, *used, *bad, *BROKEN_CSV]) + "\n")
    happened = ["a,0,", f"b,{LATEST_TIME},-9", "5,1,0"]
    bad = [_csv_line(row, EVENTS.names) for row, _ in BAD_EVENTS]
    text = "\n".join([",".join(EVENTS.names), *happened, *bad])
    (folder / "events" / "0.csv").write_text(text + "\n")


def _csv_line(row: dict[str, Any], names: list[str]) -> str:
    values = [row.get(name) for name in names]
    return ",".join(
        "|".join(map(str, value))
        if isinstance(value, list)
        else str("" if value is None else value)
        for value in values
    )


WRITERS = {
    Format.PARQUET: (write_parquet, 0),
    Format.NDJSON: (write_ndjson, len(BROKEN_JSON)),
    Format.CSV: (write_csv, len(BROKEN_CSV)),
}
each_format = pytest.mark.parametrize("form", WRITERS, ids=str)


@pytest.fixture
def folder(form: Format, tmp_path: Path) -> Path:
    """Return a folder of files of one format."""
    for name in ("ops", "events"):
        (tmp_path / name).mkdir()
    write: Callable[[Path], None] = WRITERS[form][0]
    write(tmp_path)
    return tmp_path


def flaws(form: Format) -> Counter[str]:
    """Return the expected number of rejects by reason."""
    counts = Counter(str(flaw.value) for _, flaw in [*BAD_OPERATIONS, *BAD_EVENTS])
    counts[Flaw.RECORD.value] += WRITERS[form][1]
    return counts


def used_by_spark(rows: "DataFrame") -> list[Operation]:
    """Return the operations that Spark accepts."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

    from aiowheel.jobs.operations import frames as frames

    places = F.sequence(F.lit(0), F.size("keys") - 1)
    values = {"thresholds": F.transform(places, frames.least_value)}
    used = frames.sound(rows).withColumns(values).select(*Operation._fields).collect()
    return [Operation(row[0], tuple(row[1]), tuple(row[2]), *row[3:]) for row in used]


@each_format
def test_one_process_reads_valid_rows(form: Format, folder: Path) -> None:
    """Every other row is rejected with its reason."""
    rejects: Rejects = []

    operations = list(read_operations(folder / "ops", form, rejects))
    events = list(read_events(folder / "events", form, rejects))

    assert (operations, events) == (USED, HAPPENED)
    assert Counter(reason for _, reason, _ in rejects) == flaws(form)
    assert all(raw for _, _, raw in rejects)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
@each_format
def test_spark_reads_and_rejects_the_same_rows(
    form: Format, folder: Path, spark: "SparkSession"
) -> None:
    """Rows and reasons are equal."""
    from aiowheel.jobs.operations import frames as frames
    from aiowheel.jobs.spark.sources import Source

    operations = frames.read_operations(spark, Source(str(folder / "ops"), form))
    events = frames.read_events(spark, Source(str(folder / "events"), form))
    bad = frames.rejects(operations).unionByName(frames.rejects(events)).collect()

    assert Counter(row["reason"] for row in bad) == flaws(form)
    assert all(row["raw"] and row["source"] for row in bad)
    assert sorted(used_by_spark(operations)) == sorted(USED)
    happened = frames.sound(events).select(*Event._fields).collect()
    assert sorted(Event(*row) for row in happened) == sorted(HAPPENED)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_spark_reads_thresholds_that_are_all_null(tmp_path: Path, spark: "SparkSession") -> None:
    """Spark's vectorized reader may fail on them; the settings of the session stay the same."""
    from aiowheel.jobs.operations import frames as frames
    from aiowheel.jobs.spark.session import changed_settings
    from aiowheel.jobs.spark.sources import Source

    used = [Operation(str(number), ("a",), (NO_VALUE,), 1, 7, NEVER) for number in range(100)]
    write_operations(tmp_path / "ops.parquet", used)
    before = [spark.conf.get(name, None) for name in frames.LIST_READER]

    rows = frames.read_operations(spark, Source(str(tmp_path / "ops.parquet")))

    assert [spark.conf.get(name, None) for name in frames.LIST_READER] == before
    with changed_settings(spark, frames.LIST_READER):
        assert sorted(used_by_spark(rows)) == sorted(used)


def test_the_format_is_derived_from_the_suffix(tmp_path: Path) -> None:
    """All files must have one suffix, of a format that a trace can have."""
    (tmp_path / "0.csv").write_text("")
    assert format_of_trace(tmp_path, None) is Format.CSV

    (tmp_path / "1.parquet").write_text("")
    with pytest.raises(BadInputError, match="give --format"):
        format_of_trace(tmp_path, None)
    with pytest.raises(BadInputError, match="a trace is parquet, ndjson, csv, not clf"):
        format_of_trace(tmp_path, Format.CLF)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("0.parquet", "PAR1", "0.parquet: "),
        ("0.csv", "id,keys\nx,a\n", "0.csv: line 1 must be the columns id,keys,thresholds,mode"),
    ],
)
def test_a_file_without_the_table_ends_the_run(
    name: str, text: str, reason: str, tmp_path: Path
) -> None:
    """The error names the file and the reason."""
    (tmp_path / name).write_text(text)

    with pytest.raises(BadInputError, match=reason):
        list(read_operations(tmp_path, format_of_trace(tmp_path, None), []))


def test_a_written_trace_is_read_back(tmp_path: Path) -> None:
    """No other file remains."""
    write_operations(tmp_path / "ops.parquet", USED)

    assert list(read_operations(tmp_path / "ops.parquet", Format.PARQUET, [])) == USED
    assert [path.name for path in tmp_path.iterdir()] == ["ops.parquet"]
