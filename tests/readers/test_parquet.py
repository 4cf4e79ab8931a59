"""Parquet files, read by the same rules as every other format."""

import gzip
import random
import re
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from aiowheel.errors import BadInputError
from aiowheel.readers import Inputs, TimedRows, TimeFormat, Unit, time_parser

pytestmark = pytest.mark.one_build

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

NS = 1_674_981_729_479_000_001  # beyond 2**53


def table(path: Path, unit: Unit = Unit.NS, written: TimeFormat = TimeFormat.EPOCH) -> TimedRows:
    """Return a table of one path with the usual columns."""
    return TimedRows(
        Inputs([str(path)]),
        key="key",
        time="t",
        parse_time=time_parser(written, unit),
        unit=unit,
    )


def pairs(rows: TimedRows) -> list[tuple[int, str]]:
    """Return every accepted row."""
    return [row for batch in rows.batches() for row in zip(batch.times, batch.keys, strict=True)]


def test_whole_numbers_stay_exact(tmp_path: Path) -> None:
    """Nanoseconds beyond 2**53 are exact; keys may be numbers."""
    pq.write_table(pa.table({"key": [1, 2], "t": [NS, NS + 1]}), tmp_path / "a.parquet")

    assert pairs(table(tmp_path)) == [(NS, "1"), (NS + 1, "2")]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_texts_may_have_any_layout(kind: Any, tmp_path: Path) -> None:
    """Tools that work in memory with views of texts name that type in their files."""
    columns = {name: pa.array([text]).cast(kind) for name, text in (("key", "k"), ("t", "7"))}
    try:
        pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    except pa.ArrowNotImplementedError as error:  # before pyarrow 20
        pytest.skip(str(error))

    assert pairs(table(tmp_path)) == [(7, "k")]


def test_format_and_unit_may_be_given_by_name(tmp_path: Path) -> None:
    """A table of timestamps whose file has no suffix needs both."""
    times = pa.array([7], pa.int64()).cast(pa.timestamp("s"))
    pq.write_table(pa.table({"key": ["k"], "t": times}), tmp_path / "table")
    parse_time = time_parser("epoch", "ms")

    rows = TimedRows(
        Inputs([str(tmp_path / "table")], "parquet"),
        key="key",
        time="t",
        parse_time=parse_time,
        unit="ms",
    )

    assert pairs(rows) == [(7_000, "k")]
    with pytest.raises(ValueError, match="unit must be one of 's', 'ms', 'us', 'ns', got 'h'"):
        TimedRows(Inputs([str(tmp_path)]), key="key", time="t", parse_time=parse_time, unit="h")


def test_nulls_and_negative_times_are_rejected(tmp_path: Path) -> None:
    """The error names the number of the row."""
    columns = {"key": ["a", None, "c", "d", ""], "t": [1, 2, None, -5, 3]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")

    rows = table(tmp_path / "a.parquet")

    assert pairs(rows) == [(1, "a")]
    assert [text.partition(".parquet: ")[2] for text in rows.rejects] == [
        "line 2: the key is empty",
        "line 3: time '' is not a whole number >= 0",
        "line 4: time '-5' is not a whole number >= 0",
        "line 5: the key is empty",
    ]


def test_only_the_row_with_an_invalid_key_is_rejected(tmp_path: Path) -> None:
    """Some writers store bytes in text columns; only their row is rejected."""
    offsets, data = pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff")
    keys = pa.Array.from_buffers(pa.string(), 2, [None, offsets, data])
    pq.write_table(pa.table({"key": keys, "t": [1, 2]}), tmp_path / "a.parquet")

    rows = table(tmp_path / "a.parquet")

    assert pairs(rows) == [(1, "a")]
    assert [text.partition(".parquet: ")[2] for text in rows.rejects] == [
        "line 2: the key is not UTF-8"
    ]


@pytest.mark.parametrize(
    ("kind", "value", "unit", "found"),
    [("ns", NS, Unit.NS, NS), ("us", 7, Unit.NS, 7_000), ("ms", 7_000, Unit.S, 7)],
)
def test_timestamps_become_whole_numbers(
    kind: str, value: int, unit: Unit, found: int, tmp_path: Path
) -> None:
    """Timestamps are converted to the unit of the run."""
    times = pa.array([value], pa.int64()).cast(pa.timestamp(kind, "UTC"))
    pq.write_table(pa.table({"key": ["k"], "t": times}), tmp_path / "a.parquet")

    assert pairs(table(tmp_path / "a.parquet", unit)) == [(found, "k")]


@pytest.mark.parametrize("written", [TimeFormat.DECIMAL, TimeFormat.ISO8601, TimeFormat.CLF])
def test_timestamps_have_no_format_of_text(written: TimeFormat, tmp_path: Path) -> None:
    """Their numbers would be read again, as seconds for example; text has any format."""
    times = pa.array([7], pa.int64()).cast(pa.timestamp("us"))
    pq.write_table(pa.table({"key": ["k"], "t": times}), tmp_path / "a.parquet")
    text = {
        "decimal": "7.5",
        "iso8601": "1970-01-01T00:00:07.5",
        "clf": "01/Jan/1970:00:00:07 +0000",
    }
    pq.write_table(pa.table({"key": ["k"], "t": [text[written]]}), tmp_path / "b.parquet")

    with pytest.raises(BadInputError, match=r"a\.parquet: the time format must be epoch for a col"):
        pairs(table(tmp_path / "a.parquet", written=written))
    ((moment, _),) = pairs(table(tmp_path / "b.parquet", written=written))
    assert moment // 10**9 == 7


def test_a_timestamp_that_the_unit_cannot_hold_is_rejected(tmp_path: Path) -> None:
    """The timestamp is not rounded."""
    times = [datetime(2023, 1, 1, tzinfo=UTC), datetime(2023, 1, 1, 0, 0, 0, 5, tzinfo=UTC)]
    pq.write_table(pa.table({"key": ["k", "k"], "t": times}), tmp_path / "a.parquet")

    rows = table(tmp_path / "a.parquet", Unit.MS)

    assert pairs(rows) == [(1_672_531_200_000, "k")]
    assert "line 2: time '2023-01-01 00:00:00.000005" in rows.rejects[0]


def test_a_folder_written_by_spark_is_read(tmp_path: Path) -> None:
    """Spark's files beside the table are not part of the table."""
    pq.write_table(pa.table({"key": ["k"], "t": [1]}), tmp_path / "part-0.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part-0.parquet.crc").write_bytes(b"crc")

    assert pairs(table(tmp_path)) == [(1, "k")]


def test_a_table_without_rows_is_legal(tmp_path: Path) -> None:
    """Spark writes an empty part for each task without rows; all parts may be empty."""
    columns = {"key": pa.array([], pa.string()), "t": pa.array([], pa.int64())}
    pq.write_table(pa.table(columns), tmp_path / "part-0.parquet")
    rows = table(tmp_path)

    assert pairs(rows) == []
    assert (rows.files, rows.accepted, rows.rejected) == (1, 0, 0)


def test_a_damaged_page_names_the_file(tmp_path: Path) -> None:
    """The footer is intact, the compressed rows are damaged."""
    path = tmp_path / "a.parquet"
    columns = {"key": [f"key-{row}" for row in range(1_000)], "t": list(range(1_000))}
    pq.write_table(pa.table(columns), path, compression="snappy", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[40:1_000] = b"\xff" * 960
    path.write_bytes(data)

    with pytest.raises(BadInputError, match=rf"^{re.escape(str(path))}: "):
        pairs(table(path))


def test_a_column_whose_name_is_no_utf_8_names_the_file(tmp_path: Path) -> None:
    """A damaged byte in the footer."""
    path = tmp_path / "a.parquet"
    columns = {"key": ["k"], "t": [1], "\u00e9": [1]}
    pq.write_table(pa.table(columns), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace("\u00e9".encode(), b"\xff\xfe"))

    with pytest.raises(BadInputError, match=r"a\.parquet: not a sound Parquet file: "):
        pairs(table(path))


def test_rows_that_are_missing_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow reads a damaged page without an error if it looks like a page without rows."""
    pq.write_table(pa.table({"key": ["k", "l"], "t": [1, 2]}), tmp_path / "a.parquet")
    read = pq.ParquetFile.iter_batches

    def iter_some(*arguments: Any, **options: Any) -> Iterator[Any]:
        return (batch.slice(1) for batch in read(*arguments, **options))

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", iter_some)

    with pytest.raises(BadInputError, match=r"a\.parquet: must have 2 rows by its footer, got 1"):
        pairs(table(tmp_path))


def test_parquet_inside_archives_is_read(tmp_path: Path) -> None:
    """Parquet files in a tar.gz and in a gz are read."""
    pq.write_table(pa.table({"key": ["k"], "t": [1]}), tmp_path / "a.parquet")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "a.parquet", "inside/a.parquet")
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress((tmp_path / "a.parquet").read_bytes()))

    assert pairs(table(tmp_path)) == [(1, "k")] * 3


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"key": ["k"]}, r"a\.parquet: no column 't' \(columns: key\)"),
        (
            {"key": ["k"], "t": [1.5]},
            "column 't' must be text, timestamps or whole numbers, got double",
        ),
        (
            {"key": [datetime(2026, 1, 1, tzinfo=UTC)], "t": [1]},
            "column 'key' must be text or whole numbers, got timestamp",
        ),
        ({"key": [["k"]], "t": [1]}, "column 'key' must be text or whole numbers, got list<"),
    ],
)
def test_unusable_columns_are_refused(
    columns: dict[str, list[object]], reason: str, tmp_path: Path
) -> None:
    """A float column is refused, because it has lost digits already."""
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")

    with pytest.raises(BadInputError, match=reason):
        pairs(table(tmp_path / "a.parquet"))


def test_a_column_that_a_file_has_twice_is_refused(tmp_path: Path) -> None:
    """A join writes such files; which of the columns is meant is not known."""
    columns = [pa.array(["k"]), pa.array(["j"]), pa.array([1])]
    twice = pa.Table.from_arrays(columns, ["key", "key", "t"])
    pq.write_table(twice, tmp_path / "a.parquet")

    with pytest.raises(BadInputError, match=r"a\.parquet: must have one column 'key', got 2"):
        pairs(table(tmp_path / "a.parquet"))


@pytest.mark.parametrize("content", [b"key,t\nk,1\n", b"", random.Random(7).randbytes(5_000)])
def test_a_file_that_is_not_parquet_is_refused(content: bytes, tmp_path: Path) -> None:
    """A file that is only named like Parquet is refused."""
    (tmp_path / "a.parquet").write_bytes(content)

    with pytest.raises(BadInputError, match=r"a\.parquet: not a sound Parquet file: "):
        pairs(table(tmp_path / "a.parquet"))
