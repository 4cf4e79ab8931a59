"""Results written to S3, Delta Lake and Kafka, with repeated micro-batches."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aiowheel.errors import BadInputError

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

Write = Callable[["DataFrame", int], int]


class QueryEndedError(Exception):
    """The error that ends a query in the middle of a micro-batch."""


def stream(
    spark: "SparkSession",
    folder: Path,
    write: Write,
    *,
    checkpoint: str | None = None,
    fails_after: int | None = None,
) -> None:
    """Stream the numbers in *folder* through *write*, statefully, one file per micro-batch.

    Args:
        spark: The session.
        folder: The folder that contains ``in`` and ``checkpoint``.
        write: The write method of a sink.
        checkpoint: Another place of the checkpoint.
        fails_after: The number of the micro-batch after whose write the query fails, so that the
            next start repeats it.
    """
    from pyspark.errors import StreamingQueryException

    def write_or_fail(frame: "DataFrame", batch_id: int) -> None:
        write(frame, batch_id)
        if batch_id == fails_after:
            raise QueryEndedError

    query = (
        spark.readStream.schema("id string, n bigint")
        .option("maxFilesPerTrigger", 1)
        .json(str(folder / "in"))
        .dropDuplicates(["id"])
        .writeStream.option("checkpointLocation", checkpoint or str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(write_or_fail)
        .start()
    )
    if fails_after is None:
        query.awaitTermination()
    else:
        with pytest.raises(StreamingQueryException):
            query.awaitTermination()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Write three files of two rows to a folder; one id occurs twice."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number, ids in enumerate(["ab", "cd", "de"]):
        rows = [json.dumps({"id": each, "n": number}) for each in ids]
        (folder / f"{number}.json").write_text("\n".join(rows))
        os.utime(folder / f"{number}.json", (number, number))  # Spark reads the oldest file first
    return tmp_path


def ids(rows: "DataFrame") -> str:
    """Return the ids, sorted."""
    return "".join(sorted(row["id"] for row in rows.collect()))


def test_a_repeated_batch_is_in_a_delta_table_once(
    spark: "SparkSession", work: Path, bucket: str
) -> None:
    """The query fails after each write, and is restarted."""
    from aiowheel.jobs.spark.targets import open_sink

    path, counts = f"{bucket}/table", list[int]()
    sink = open_sink(spark, f"delta:{path}", checkpoint=str(work / "checkpoint"), key=["id"])

    def write(frame: "DataFrame", batch_id: int) -> int:
        counts.append(sink.write(frame, batch_id))
        return counts[-1]

    stream(spark, work, write, fails_after=0)
    stream(spark, work, write, fails_after=1)
    stream(spark, work, write)

    table = spark.read.format("delta").load(path)
    assert ids(table) == "abcde"
    assert len(table.inputFiles()) == 3  # one per micro-batch, for any number of tasks
    assert counts == [2, 2, 2, 2, 1]


def test_another_stream_adds_its_rows(spark: "SparkSession", work: Path) -> None:
    """The other stream's micro-batches start at 0 and are not mistaken for existing ones."""
    from aiowheel.jobs.spark.targets import open_sink

    for checkpoint in ("checkpoint", "before"):
        sink = open_sink(spark, f"delta:{work}/table", checkpoint=str(work), key=["id"])
        stream(spark, work, sink.write)
        if checkpoint == "checkpoint":
            (work / "checkpoint").rename(work / "elsewhere")

    assert ids(spark.read.format("delta").load(f"{work}/table")) == "aabbccddee"


@pytest.mark.parametrize("place", ["s3", "file", "s3, checkpoint too"])
def test_a_repeated_batch_is_in_its_folder_once(
    spark: "SparkSession", work: Path, bucket: str, place: str
) -> None:
    """On an object store and on a disk, a batch is complete or absent; state may be in S3."""
    import pyarrow as pa

    from aiowheel.jobs.spark.hadoop import read_whole_folders
    from aiowheel.jobs.spark.targets import open_sink
    from aiowheel.jobs.spark.uris import Folder, parse_uri

    uri = f"file://{work}/out[1]" if place == "file" else f"{bucket}/out"
    folder = parse_uri(uri)
    assert isinstance(folder, Folder)
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    checkpoint = f"{bucket if 'checkpoint' in place else work}/checkpoint"
    counts = list[int]()
    for fails_after in (0, 1, None):
        sink = open_sink(spark, uri, checkpoint=checkpoint, key=["id"])

        def write(frame: "DataFrame", batch_id: int, sink: Any = sink) -> int:
            counts.append(sink.write(frame, batch_id))
            return counts[-1]

        stream(spark, work, write, checkpoint=checkpoint, fails_after=fails_after)

    assert ids(read_whole_folders(spark, folder, schema)) == "abcde"
    assert counts == [2, 2, 2, 2, 1]
    with pytest.raises(BadInputError, match="holds the batches of another stream"):
        open_sink(spark, uri, checkpoint=str(work / "new"), key=["id"])


def test_an_incomplete_folder_is_not_read_and_replaced(
    spark: "SparkSession", work: Path, bucket: str
) -> None:
    """The incomplete folder of a crash has no `_SUCCESS`."""
    import pyarrow as pa

    from aiowheel.jobs.spark.hadoop import HadoopFolders, read_whole_folders
    from aiowheel.jobs.spark.uris import Folder

    folder = Folder(f"{bucket}/half", "s3a")
    schema = pa.schema([("id", pa.string())])
    assert read_whole_folders(spark, folder, schema).count() == 0
    half = spark.createDataFrame([("x",)], "id string")
    half.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(
        f"{folder.path}/batch_id=000000"
    )
    assert read_whole_folders(spark, folder, schema).count() == 0

    (work / "checkpoint" / "commits").mkdir(parents=True)
    sink = HadoopFolders(spark, folder, Folder(str(work / "checkpoint"), "file"))
    assert sink.write(spark.createDataFrame([("a",)], "id string"), 0) == 1
    assert sink.write(spark.createDataFrame([], "id string"), 1) == 0

    assert ids(read_whole_folders(spark, folder, schema)) == "a"


def test_a_repeated_batch_has_the_same_keys_in_a_topic(
    spark: "SparkSession", work: Path, topics: "Topics"
) -> None:
    """Delivery is at least once; skipping known keys yields each row once."""
    from aiowheel.jobs.spark.targets import open_sink

    uri = topics.make("outcomes")
    sink = open_sink(spark, uri, checkpoint=str(work / "checkpoint"), key=["id"])
    stream(spark, work, sink.write, fails_after=1)
    stream(spark, work, sink.write)

    records = records_of(spark, uri)
    assert len(records) == 7
    assert sorted(set(records)) == [
        ("a", '{"id":"a","n":0}'),
        ("b", '{"id":"b","n":0}'),
        ("c", '{"id":"c","n":1}'),
        ("d", '{"id":"d","n":1}'),
        ("e", '{"id":"e","n":2}'),
    ]


def test_the_result_of_a_batch_is_written_everywhere(
    spark: "SparkSession", topics: "Topics", bucket: str
) -> None:
    """Idle events are written to every target, twice, as by a restarted run."""
    from aiowheel.jobs.spark.targets import write_rows

    rows = spark.range(MANY).selectExpr("id AS fire", "concat('k', id % 10) AS key")
    topic = topics.make("idle")
    uris = [f"{bucket}/parquet", f"delta:{bucket}/delta", topic]

    counts = [write_rows(rows, uri, key=["key", "fire"]) for uri in uris for _ in range(2)]

    assert counts == [MANY] * 6
    assert spark.read.parquet(uris[0]).count() == MANY
    assert spark.read.format("delta").load(f"{bucket}/delta").count() == MANY
    records = records_frame(spark, topic)
    assert records.count() == 2 * MANY
    assert records.select("key").distinct().count() == MANY
    assert records.where('value = \'{"fire":3,"key":"k3"}\'').first()["key"] == (  # type: ignore[index]
        '{"key":"k3","fire":3}'
    )


def test_a_batch_replaces_only_its_own_result(spark: "SparkSession", bucket: str) -> None:
    """A folder that holds more than one is left alone, whole."""
    from aiowheel.jobs.spark.targets import write_rows

    rows, outer = spark.range(5), f"{bucket}/replaced"
    for place in ("own", "own", "other"):
        assert write_rows(rows, f"{outer}/{place}", key=["id"]) == 5
    rows.write.json(f"{outer}/json")

    with pytest.raises(BadInputError, match=rf"{outer}: would be replaced, but holds json/part-"):
        write_rows(rows, outer, key=["id"])

    assert spark.read.parquet(f"{outer}/own", f"{outer}/other").count() == 10


@pytest.mark.parametrize("length", [65_536, 900_000])
def test_a_long_text_fits_into_a_record(
    spark: "SparkSession", topics: "Topics", length: int
) -> None:
    """A record has a long text once, and of a rejected row only the beginning: Kafka's limit."""
    from aiowheel.jobs.spark.targets import write_rows

    key, raw = "k" * length, '"' * length
    is_long = length > 65_536
    events, bad = topics.make(f"long-{length}"), topics.make(f"long-{length}.rejects")
    rows = spark.createDataFrame([(7, key)], "fire bigint, key string")
    rejects = spark.createDataFrame(
        [("t/0@1", "why", raw)], "source string, reason string, raw string"
    )

    assert write_rows(rows, events, key=["key", "fire"]) == 1
    assert write_rows(rejects, bad, key=["source", "raw"]) == 1

    ((event_key, event),) = records_of(spark, events)
    assert json.loads(event) == {"fire": 7, "key": key}
    assert json.loads(event_key) == {"key": digest(key) if is_long else key, "fire": 7}
    ((bad_key, reject),) = records_of(spark, bad)
    assert json.loads(reject) == {"source": "t/0@1", "reason": "why", "raw": raw[:65_536]}
    assert json.loads(bad_key) == {"source": "t/0@1", "raw": digest(raw) if is_long else raw}


def test_a_row_that_the_topic_refuses_is_named_as_such(
    spark: "SparkSession", topics: "Topics"
) -> None:
    """The limit of the topic is that of the broker, 1 MiB by default."""
    from aiowheel.jobs.spark.failures import one_line_failures
    from aiowheel.jobs.spark.targets import write_rows

    rows = spark.createDataFrame([("k" * 2_000_000,)], "id string")
    uri = topics.make("too-long")

    with (
        pytest.raises(BadInputError, match=r"raise its max\.message\.bytes"),
        one_line_failures(),
    ):
        write_rows(rows, uri, key=["id"])


def digest(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def records_frame(spark: "SparkSession", uri: str) -> "DataFrame":
    """Return key and value of the records of a topic, as text."""
    address, name = uri.removeprefix("kafka://").split("/")
    options = {"kafka.bootstrap.servers": address, "subscribe": name}
    rows = spark.read.format("kafka").options(**options).load()
    return rows.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")


def records_of(spark: "SparkSession", uri: str) -> list[tuple[str, str]]:
    """Return the same as a list."""
    return [(row["key"], row["value"]) for row in records_frame(spark, uri).collect()]
