"""The streaming commands between a real Kafka, S3 and Delta Lake."""

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aiowheel.cli import run
from aiowheel.jobs.operations.shard import Shard
from aiowheel.recipes._idle_trace import idle_events
from aiowheel.rules import COMPLETED, NEVER, NO_VALUE, Event, Operation
from tests.jobs.kills import event_lines, operation_lines, touch_lines

from .conftest import MANY
from .test_targets import records_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .conftest import Topics

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # PySpark 4.0's own
]


def report_of(command: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Run a command; return its report."""
    assert run([*command, "--json"]) == 0, capsys.readouterr().err
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def encoded(lines: list[str]) -> list[bytes | None]:
    """Encode lines as values of records."""
    return [line.encode() for line in lines]


def test_touches_from_kafka_to_delta(
    spark: "SparkSession",
    topics: "Topics",
    bucket: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two runs find the wheel's events; bad rows go to S3, and the report counts all rows."""
    source = random.Random(3)
    touches = [(source.randrange(1_000_000), f"k{source.randrange(500)}") for _ in range(MANY)]
    touches.sort()
    values = encoded(touch_lines(touches))
    uri = topics.make("stream-touches")
    out = f"{bucket}/idle"
    command = ["idle", uri, "--stream", "--unit", "ms", "--timeout", "5", "--max-lateness", "3600"]
    command += ["--out", f"delta:{out}", "--rejects", f"{bucket}/rejects"]
    command += ["--checkpoint", str(tmp_path / "checkpoint")]

    topics.send("stream-touches", [*values[: MANY // 2], b'{"key": ""}', b"none", None])
    once = report_of([*command, "--once"], capsys)
    topics.send("stream-touches", values[MANY // 2 :])
    drained = report_of([*command, "--drain", "--records-per-batch", str(MANY)], capsys)

    assert (once["ended"], drained["ended"]) == ("once", "drained")
    assert (once["rows"], once["rejected"], once["late"]) == (MANY // 2, 3, 0)
    assert (drained["rows"], drained["rejected"], drained["late"]) == (MANY - MANY // 2, 0, 0)
    found = spark.read.format("delta").load(out).collect()
    assert sorted(tuple(row) for row in found) == list(idle_events(touches, 5_000))
    bad = spark.read.parquet(f"{bucket}/rejects").collect()
    assert sorted(row["raw"] for row in bad) == ["", "none", '{"key": ""}']
    assert all(row["source"].startswith("stream-touches/") for row in bad)


def test_operations_from_kafka_to_kafka(
    spark: "SparkSession",
    topics: "Topics",
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The outcomes equal those of one process, and every row is in one result."""
    source = random.Random(4)
    operations = [
        Operation(f"o{n}", (f"k{n % 700}", f"k{n % 900}x"), (NO_VALUE,) * 2, 1 + n % 2, n, n + 400)
        for n in range(MANY // 4)
    ]
    events = [
        Event(f"k{source.randrange(900)}" + source.choice(("", "x")), n, NO_VALUE)
        for n in range(MANY // 4)
    ]
    shard = Shard(10)
    shard.feed(operations, events)
    wanted = shard.settle(NEVER - 1)
    topics.make("stream-ops")
    topics.make("stream-events")
    for name in ("outcomes", "rejects"):
        topics.make(f"stream-found.{name}")
    topics.send("stream-ops", [*encoded(operation_lines(operations)), b"none"])
    topics.send("stream-events", encoded(event_lines(events)))
    address = topics.address
    command = ["purgatory", f"kafka://{address}/stream-ops", f"kafka://{address}/stream-events"]
    command += ["--stream", "--tick", "10", "--max-lateness", "3600", "--shards", "2", "--drain"]
    command += ["--out", f"kafka://{address}/stream-found"]
    command += ["--checkpoint", str(tmp_path / "checkpoint")]

    report = report_of(command, capsys)

    counts = [report[name] for name in ("operations", "events", "rejected", "late", "pending")]
    assert counts == [MANY // 4 + 1, MANY // 4, 1, 0, 0]
    assert report["outcomes"] == len(wanted) == len(operations)
    found = [json.loads(value) for _, value in records_of(spark, f"{command[-3]}.outcomes")]
    ends = [(row["id"], row["outcome"], row["completed_by"], row["at"]) for row in found]
    assert sorted(ends) == sorted(tuple(row) for row in wanted)
    assert any(row[1] == COMPLETED for row in ends)
    (bad,) = records_of(spark, f"{command[-3]}.rejects")
    assert json.loads(bad[1])["raw"] == "none"
    assert run(command) == 2
    assert "this stream has been flushed" in capsys.readouterr().err
