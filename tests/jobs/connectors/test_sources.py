"""Tables read from a real Kafka, from S3, from Delta Lake and from files, bad rows included."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aiowheel.errors import BadInputError
from aiowheel.readers import Format
from aiowheel.rules import NEVER, NO_VALUE

from .conftest import MANY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .conftest import Topics

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # PySpark 4.0's own
]

RECORD = "is no record of this table"
# A value, and the reason why it is not a touch, or None.
VALUES: list[tuple[bytes | None, str | None]] = [
    (b'{"key": "a", "t": 1}', None),
    (' {"key": "\u00fc", "t": -2, "more": [1]} '.encode(), None),
    (b'{"key": "a"}', "t is missing"),
    (b'{"t": 1}', "key is missing"),
    (b"{}", "key is missing"),
    (b'{"key": "a", "t": 1.5}', RECORD),
    (b'{"key": "a", "t": "1"}', RECORD),
    (b'{"key": "a", "t": 99999999999999999999}', RECORD),
    (b'[{"key": "a", "t": 1}]', RECORD),
    (b'{"key": "a", "t": 1} {"key": "b", "t": 2}', RECORD),
    (b'{"key": "a", "t": 1}, {"key": "b", "t": 2}', RECORD),
    (b'{"key": "a", "t": 1} x', RECORD),
    (b'{"key": "a", "t": 1', RECORD),
    (b"{'key': 'a', 't': 1}", RECORD),
    (b'{"key": "\xff", "t": 1}', RECORD),
    (b"\xff\xfe\x00", RECORD),
    (b"a", RECORD),
    (b"null", RECORD),
    (b"", RECORD),
    (None, RECORD),
]


def reasons(rows: "DataFrame") -> list[tuple[str | None, str | None]]:
    """Return reason and raw of each row that has a reason."""
    found = [(row["reason"], row["raw"]) for row in rows.collect() if row["reason"] is not None]
    return sorted(found, key=repr)


def texts(values: Sequence[tuple[bytes | None, str | None]]) -> list[tuple[str | None, str | None]]:
    """Return the result of `reasons` for *values*; invalid UTF-8 is shown as U+FFFD."""
    found: list[tuple[str | None, str | None]] = [
        (reason, (value or b"").decode(errors="replace"))
        for value, reason in values
        if reason is not None
    ]
    return sorted(found, key=repr)


def touches_of(rows: "DataFrame") -> list[tuple[Any, ...]]:
    """Return the touches that can be read."""
    from aiowheel.jobs.spark.sources import readable

    return sorted(map(tuple, readable(rows).collect()))


def test_every_record_of_a_topic_is_read(spark: "SparkSession", topics: "Topics") -> None:
    """Each value is a row of the table, or a row with its text and a reason."""
    from aiowheel.jobs.spark.sources import Source, read_touches, unreadable

    uri = topics.make("touches", partitions=1)
    topics.send("touches", [value for value, _ in VALUES])

    rows = read_touches(spark, Source(uri))

    assert rows.count() == len(VALUES)
    assert touches_of(rows) == [("a", 1), ("\u00fc", -2)]
    assert reasons(rows) == texts(VALUES)
    sources = [row["source"] for row in unreadable(rows).collect()]
    assert sources == [f"touches/0@{offset}" for offset in range(2, len(VALUES))]


def test_aborted_records_are_not_read(spark: "SparkSession", topics: "Topics") -> None:
    """Records of an aborted transaction are not read."""
    from aiowheel.jobs.spark.sources import Source, read_touches

    uri = topics.make("aborted", partitions=1)
    topics.send("aborted", [b'{"key": "a", "t": 1}'])
    topics.send_and_abort("aborted", [b'{"key": "b", "t": 2}'])
    topics.send("aborted", [b'{"key": "c", "t": 3}'])

    assert touches_of(read_touches(spark, Source(uri))) == [("a", 1), ("c", 3)]


def test_avro_values_are_read_or_rejected(spark: "SparkSession", topics: "Topics") -> None:
    """Rows in Avro's binary encoding are read; other bytes are rejected."""
    from pyspark.sql.avro.functions import to_avro

    from aiowheel.jobs.operations.frames import read_operations, sound
    from aiowheel.jobs.schemas import OPERATIONS
    from aiowheel.jobs.spark.sources import Source
    from aiowheel.jobs.spark.values import ValueFormat, avro_schema, ddl

    uri = topics.make("avro", partitions=1)
    rows = [
        ("1", ["a"], None, None, 5, None),
        ("2", ["a", "b"], [3, None], "all", 6, 2**60),
    ]
    used = [("1", ["a"], None, 1, 5, NEVER), ("2", ["a", "b"], [3, None], 2, 6, 2**60)]
    frame = spark.createDataFrame(rows, ddl(OPERATIONS))
    encoded = frame.selectExpr("struct(*) AS row").select(
        to_avro("row", avro_schema("operations")).alias("value")
    )
    good = [bytes(row["value"]) for row in encoded.collect()]
    bad: list[bytes | None] = [
        b"\x00",
        b"",
        good[0] + b"x",
        b"\x00\x00\x00\x00\x07" + good[0],
        None,
    ]
    topics.send("avro", [*good, *bad])

    found = read_operations(spark, Source(uri, value_form=ValueFormat.AVRO))

    assert (
        sorted(
            map(
                tuple,
                sound(found)
                .select("id", "keys", "thresholds", "wanted", "created", "deadline")
                .collect(),
            )
        )
        == used
    )
    assert [row["flaw"] for row in found.where("flaw IS NOT NULL").collect()] == [RECORD] * 5


def test_a_stream_continues_from_its_checkpoint(
    spark: "SparkSession", topics: "Topics", tmp_path: Path
) -> None:
    """The stream starts at the beginning of the topic; each record is in one micro-batch."""
    from pyspark.sql import functions as F  # noqa: N812

    from aiowheel.jobs.operations.frames import read_events
    from aiowheel.jobs.spark.sources import Source

    uri = topics.make("events", partitions=3)
    numbers = spark.range(MANY).withColumn(
        "value",
        F.expr("to_json(struct(concat('k', id % 100) AS key, id AS time, id % 7 AS value))"),
    )
    address, name = uri.removeprefix("kafka://").split("/")
    to_kafka = {"kafka.bootstrap.servers": address, "topic": name}
    batches: dict[int, int] = {}
    found = str(tmp_path / "found")

    def note(frame: "DataFrame", batch_id: int) -> None:
        frame.select("time").write.mode("append").parquet(found)
        batches[batch_id] = 1

    def run() -> None:
        rows = read_events(spark, Source(uri, per_batch=MANY // 2))
        query = (
            rows.where("flaw is null")
            .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(note)
            .start()
        )
        query.awaitTermination()

    for half in (numbers.where(f"id < {MANY // 2}"), numbers.where(f"id >= {MANY // 2}")):
        half.select("value").write.format("kafka").options(**to_kafka).save()
        run()

    times = spark.read.parquet(found)
    assert times.count() == times.distinct().count() == MANY
    assert len(batches) >= 2


def write_lines(folder: Path, text: bytes) -> None:
    """Write a file into a new folder."""
    folder.mkdir()
    (folder / "part-0").write_bytes(text)


@pytest.mark.parametrize("stream", [False, True])
def test_lines_of_files_are_read_or_rejected(
    spark: "SparkSession", tmp_path: Path, *, stream: bool
) -> None:
    """The same values are read as lines of ndjson; blank lines are skipped."""
    from aiowheel.jobs.spark.sources import Source, read_touches

    values = [(value, reason) for value, reason in VALUES if value]
    write_lines(tmp_path / "in[1]", b"\n\n".join(value for value, _ in values))
    source = Source(
        (tmp_path / "in[1]").as_uri().replace("%5B", "[").replace("%5D", "]"),
        Format.NDJSON,
        per_batch=1 if stream else None,
    )

    rows = read_touches(spark, source)
    if stream:
        query = (
            rows.writeStream.format("memory").queryName("lines").trigger(availableNow=True).start()
        )
        query.awaitTermination()
        rows = spark.table("lines")

    assert touches_of(rows) == [("a", 1), ("\u00fc", -2)]
    assert reasons(rows) == texts(values)


def test_csv_and_parquet_on_s3_are_read(spark: "SparkSession", bucket: str) -> None:
    """Files are read through s3a like files on a disk."""
    from aiowheel.jobs.operations.frames import read_operations, sound
    from aiowheel.jobs.schemas import Flaw
    from aiowheel.jobs.spark.sources import Source

    lines = ["1,a|b,|3,all,5,", "2,a,,,x,", "3,a,,,,9", '4,"a"', "5,a,,one,1,"]
    frame = spark.createDataFrame(
        [(line,) for line in ["id,keys,thresholds,mode,created,deadline", *lines]], "v string"
    )
    frame.coalesce(1).write.text(f"{bucket}/csv")
    rows = read_operations(spark, Source(f"{bucket}/csv", Format.CSV))
    good = [("1", ["a", "b"], [None, 3], 2, 5, NEVER)]
    bad = [Flaw.MODE, Flaw.RECORD, Flaw.CREATED, Flaw.RECORD]

    def flaws(rows: "DataFrame") -> list[str]:
        return sorted(row["flaw"] for row in rows.where("flaw IS NOT NULL").collect())

    found = (
        sound(rows).select("id", "keys", "thresholds", "wanted", "created", "deadline").collect()
    )
    assert [
        (row[0], row[1], [None if n == NO_VALUE else n for n in row[2]], *row[3:]) for row in found
    ] == good
    assert flaws(rows) == sorted(bad)
    assert all(row["source"].startswith(f"{bucket}/csv/") for row in rows.collect())

    ends = spark.createDataFrame(
        [("1", ["a"], 5), ("2", [], 5)], "id string, keys array<string>, created bigint"
    )
    ends.write.parquet(f"{bucket}/parquet")
    again = read_operations(spark, Source(f"{bucket}/parquet"))
    assert [row["id"] for row in sound(again).collect()] == ["1"]
    assert flaws(again) == [Flaw.KEYS]


def test_delta_is_read_as_batch_and_as_stream(
    spark: "SparkSession", bucket: str, tmp_path: Path
) -> None:
    """A stream reads rows that are appended later."""
    from aiowheel.jobs.spark.sources import Source, read_touches

    uri = f"delta:{bucket}/touches"
    table = spark.createDataFrame([("a", 1), (None, 2)], "key string, t bigint")
    table.write.format("delta").save(f"{bucket}/touches")

    rows = read_touches(spark, Source(uri))
    assert touches_of(rows) == [("a", 1)]
    assert [(reason, json.loads(raw or "")) for reason, raw in reasons(rows)] == [
        ("key is missing", {"key": None, "t": 2})
    ]

    stream = read_touches(spark, Source(uri, per_batch=1))
    query = (
        stream.writeStream.format("memory")
        .queryName("delta")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    query.processAllAvailable()
    table.write.format("delta").mode("append").save(f"{bucket}/touches")
    query.processAllAvailable()
    query.stop()
    assert touches_of(spark.table("delta")) == [("a", 1), ("a", 1)]


def test_a_delta_table_with_other_columns_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    """The table is refused, not read as rows of nulls."""
    from aiowheel.jobs.spark.sources import Source, read_touches

    uri = f"delta:{tmp_path}/table"
    spark.range(1).write.format("delta").save(f"{tmp_path}/table")

    with pytest.raises(BadInputError, match=r"key must be string, got no such column"):
        read_touches(spark, Source(uri))
