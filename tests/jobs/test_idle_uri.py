"""Idle detection over a table that a URI names, by any URI: bad rows, and a table that grows."""

import contextlib
import json
from collections.abc import Generator, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aiowheel.errors import BadInputError
from aiowheel.readers import LATEST_TIME, Format, Unit

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TIMEOUT = 10


@pytest.fixture
def run_table(spark: "SparkSession", tmp_path: Path) -> "Callable[[str], None]":
    """Return the command, with the session of the tests and with outputs in the test's folder."""
    from aiowheel.cli import _idle_uri

    @contextlib.contextmanager
    def session(uris: Iterable[str]) -> "Generator[SparkSession]":
        assert list(uris)
        yield spark

    def run(uri: str) -> None:
        _idle_uri.run_table(
            [uri],
            str(tmp_path / "idle"),
            str(tmp_path / "bad"),
            timeout=TIMEOUT,
            unit=Unit.S,
            form=None,
            topic_options={},
            open_session=session,
            as_json=True,
        )

    return run


def test_rows_that_a_stream_rejects_are_rejected(
    run_table: "Callable[[str], None]", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A time outside the legal range has no place, and could end the run."""
    latest = LATEST_TIME - TIMEOUT
    rows: list[tuple[str | None, int | None]] = [
        ("a", 0),
        ("b", latest),
        ("a", -1),
        ("b", latest + 1),
        ("b", 2**63 - 1),
        ("", 3),
    ]
    rows += [(None, 4), ("c", None)]
    (tmp_path / "in").mkdir()
    table = pa.table({"key": [key for key, _ in rows], "t": [t for _, t in rows]})
    pq.write_table(table, tmp_path / "in" / "0.parquet")

    run_table(f"file://{tmp_path}/in")

    report = json.loads(capsys.readouterr().out)
    assert (report["rows_read"], report["rows"], report["rejected"]) == (8, 2, 6)
    found = pq.read_table(tmp_path / "idle").to_pylist()
    assert sorted((row["fire"], row["key"]) for row in found) == [
        (TIMEOUT, "a"),
        (LATEST_TIME, "b"),
    ]
    assert sorted(row["reason"] for row in pq.read_table(tmp_path / "bad").to_pylist()) == [
        "key is missing",
        "t is missing",
        "the key is empty",
        "time '-1' is not a whole number >= 0",
        f"time '{latest + 1}' is beyond {latest}",
        f"time '{2**63 - 1}' is beyond {latest}",
    ]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_csv_that_is_not_utf_8_is_rejected(
    mark: bytes, spark: "SparkSession", tmp_path: Path
) -> None:
    """Spark would replace the bytes, which could make two different keys equal."""
    from aiowheel.jobs.spark.sources import Source, read_touches, readable, unreadable

    good = ["M\u00fcller", "\ufffd", "\u65e5,\u672c", "\U0001f600", "\u0085", 'a"b', " \u00a0"]
    lines = ['"' + key.replace('"', '""') + f'",{t}' for t, key in enumerate(good)]
    text = mark + b"key,t\n" + "".join(f"{line}\n" for line in lines).encode()
    (tmp_path / "0.csv").write_bytes(text + b"M\xfcller,7\r\nM\xf6ller,8\r\na,\xff\nb\xff\n")

    rows = read_touches(spark, Source(str(tmp_path), Format.CSV))

    found = sorted(readable(rows).collect(), key=lambda row: int(row["t"]))
    assert [tuple(row) for row in found] == [(key, t) for t, key in enumerate(good)]
    bad = unreadable(rows).collect()
    assert {row["reason"] for row in bad} == {"is no record of this table"}
    assert sorted(row["raw"] for row in bad) == [
        "M\ufffdller,7",
        "M\ufffdller,8",
        "a,\ufffd",
        "b\ufffd",
    ]


def test_a_topic_that_grows_is_read_once(
    run_table: "Callable[[str], None]",
    spark: "SparkSession",
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The report, the events and the rejects are of the same rows."""
    from aiowheel.jobs.spark import sources

    log = tmp_path / "log"
    log.write_text("")
    types = "key string, t bigint, source string, reason string, raw string"

    def read(_spark: "SparkSession", *_: Any) -> "DataFrame":
        return spark.range(0, 1, 1, 1).mapInArrow(partial(growing, log), types)

    monkeypatch.setattr(sources, "read_touches", read)

    run_table("kafka://broker:9092/touches")

    report = json.loads(capsys.readouterr().out)
    rejects = pq.read_table(tmp_path / "bad").num_rows
    assert report["rejected"] == rejects == report["rows"] == report["idle_events"]


@pytest.mark.parametrize("name", ["idle/notes.txt", "bad/2026/notes.txt", "idle", "bad"])
def test_a_folder_with_other_files_is_not_replaced(
    name: str, run_table: "Callable[[str], None]", tmp_path: Path
) -> None:
    """The result replaces its folder, so `--out .` would delete everything there."""
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"key": ["a"], "t": [1]}), tmp_path / "in" / "0.parquet")
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("kept")

    with pytest.raises(
        BadInputError, match=r"notes\.txt, which is no file of|must be a folder for"
    ):
        run_table(f"file://{tmp_path}/in")

    assert (tmp_path / name).read_text() == "kept"
    assert {path.name for path in tmp_path.iterdir()} == {"in", Path(name).parts[0]}


def growing(log: Path, _batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a good and a bad row for each time that the table has been read."""
    log.write_text(f"{log.read_text()}x")
    for number in range(len(log.read_text())):
        nothing = {"key": None, "t": None, "source": "s", "reason": "bad", "raw": ""}
        good = {"key": f"k{number}", "t": 1, "source": "s", "reason": None, "raw": None}
        schema = pa.schema(
            {"key": pa.string(), "t": pa.int64()}
            | dict.fromkeys(("source", "reason", "raw"), pa.string())
        )
        yield pa.RecordBatch.from_pylist([good, nothing], schema)
