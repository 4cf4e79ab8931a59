"""Files of a trace that are unlike what they should be: the same to Python and to Spark."""

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from aiowheel.errors import BadInputError
from aiowheel.jobs.operations.files import Rejects, read_events, write_rejects
from aiowheel.readers import Format
from aiowheel.rules import Event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ODD_LINES = [
    '[{"key": "a", "time": 1}, {"key": "b", "time": 2}]',
    "[]",
    '[{"key": "c", "time": 3}, {"key": "d", "time": "x"}]',
    '[{"key": "e", "time": 4}, 5]',
    '[{"time": 6}]',
    '{"key": 1.50, "time": 7}',
    '{"key": true, "time": 8}',
    "{'key': 'f', 'time': 9}",
    '{"key": NaN, "time": 9}',
    '{"key": "g\\ud800", "time": 10}',
]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_odd_lines_are_the_same_to_both(tmp_path: Path, spark: "SparkSession") -> None:
    """An array of objects is its objects, all of them or none."""
    from aiowheel.jobs.operations import frames as _trace_frames

    file = tmp_path / "events.ndjson"
    broken = b'{"key": "h\xff", "time": 11}\n'
    file.write_bytes("\n".join([*ODD_LINES, ""]).encode() + broken)
    rejected: Rejects = []

    used = list(read_events(file, Format.NDJSON, rejected))
    rows = _trace_frames.read_events(spark, file, Format.NDJSON).collect()

    assert [event.key for event in used] == ["a", "b", "1.50", "true", "g?"]
    assert [Event(row.key, row.time, row.value) for row in rows if row.flaw is None] == used
    assert [reason for _, reason, _ in rejected] == [row.flaw for row in rows if row.flaw]
    assert len(rejected) == 7


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_blank_lines_of_a_csv_are_no_rows_to_both(tmp_path: Path, spark: "SparkSession") -> None:
    """Blanks and tabs are none either."""
    from aiowheel.jobs.operations import frames as _trace_frames

    file = tmp_path / "events.csv"
    file.write_text("\nkey,time,value\n  \na,1,\n\t\n\nb,2,\n")

    used = list(read_events(file, Format.CSV, []))

    rows = _trace_frames.read_events(spark, file, Format.CSV).collect()
    assert [row.key for row in rows] == [event.key for event in used] == ["a", "b"]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_folder_is_read_at_any_depth_by_both(tmp_path: Path, spark: "SparkSession") -> None:
    """Spark would leave out what does not lie at the top, and trip over day=1."""
    from aiowheel.jobs.operations import frames as _trace_frames

    for number, place in enumerate(("", "sub/deep", "day=1", "_hidden")):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        row = f'{{"key": "{number}", "time": 1}}\n'
        (tmp_path / place / f"{number}.ndjson").write_text(row)

    used = {event.key for event in read_events(tmp_path, Format.NDJSON, [])}

    rows = _trace_frames.read_events(spark, tmp_path, Format.NDJSON).collect()
    assert {row.key for row in rows} == used == {"0", "1", "2"}


def test_what_is_no_utf8_is_rejected_and_can_be_written(tmp_path: Path) -> None:
    """Text that has no UTF-8 would end the writing of the rejects."""
    (tmp_path / "events.ndjson").write_bytes(b"\xff\xfe\n")
    (tmp_path / "events.csv").write_bytes(b"key,time,value\n\xff,x,\n\xff,1,\n")
    rejected: Rejects = []

    assert list(read_events(tmp_path / "events.ndjson", Format.NDJSON, rejected)) == []
    (event,) = read_events(tmp_path / "events.csv", Format.CSV, rejected)

    assert event.key == "\ufffd"
    write_rejects(tmp_path / "rejects.parquet", rejected)
    assert pq.read_table(tmp_path / "rejects.parquet").column("raw").to_pylist() == [
        "\ufffd\ufffd",
        "\ufffd,x,",
    ]


def test_a_field_beyond_the_reader_is_a_bad_row(tmp_path: Path) -> None:
    """The rows after it are read."""
    (tmp_path / "events.csv").write_text(f"key,time,value\n{'k' * 200_000},1,\na,2,\n")
    rejected: Rejects = []

    events = list(read_events(tmp_path / "events.csv", Format.CSV, rejected))

    assert [event.key for event in events] == ["a"]
    assert len(rejected) == 1


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    """The file, and what is wrong with it."""
    file = tmp_path / "events.ndjson.gz"
    file.write_bytes(gzip.compress(b'{"key": "a", "time": 1}\n')[:-9])

    with pytest.raises(BadInputError, match=r"events\.ndjson\.gz: the compressed data ends too"):
        list(read_events(file, Format.NDJSON, []))
