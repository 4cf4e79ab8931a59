"""The commands with a Kafka that asks for TLS and a password."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiowheel.cli import run

from .test_streams import report_of
from .test_targets import records_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .broker import Broker
    from .conftest import Topics

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # PySpark 4.0's own
]


@pytest.fixture
def config(broker: "Broker", tmp_path: Path) -> Path:
    """Return a file with the options of a client that the broker accepts."""
    file = tmp_path / "client.properties"
    file.write_text(broker.client_properties())
    return file


@pytest.mark.parametrize("how", [["--engine", "spark"], ["--stream", "--drain"]])
def test_idle_reads_and_writes_with_a_password(
    how: list[str],
    spark: "SparkSession",
    broker: "Broker",
    topics: "Topics",
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The file serves the source, the results and the rejected rows."""
    name = f"secure-{how[0].strip('-')}"
    for topic in (name, f"{name}-idle", f"{name}-bad"):
        topics.make(topic)
    topics.send(name, [b'{"key": "a", "t": 1}', b'{"key": "b", "t": 5}', b"none"])
    secure = f"kafka://{broker.secure}/{name}"
    command = ["idle", secure, *how, "--unit", "ms", "--timeout", "1"]
    command += ["--out", f"{secure}-idle", "--rejects", f"{secure}-bad"]
    command += ["--kafka-config", str(config)]
    if "--stream" in how:
        command += ["--checkpoint", str(tmp_path / "checkpoint")]

    found = report_of(command, capsys)

    assert (found["idle_events"], found["rejected"]) == (2, 1)
    events = [
        json.loads(value) for _, value in records_of(spark, f"kafka://{topics.address}/{name}-idle")
    ]
    assert sorted((row["key"], row["fire"]) for row in events) == [("a", 1_001), ("b", 1_005)]
    assert len(records_of(spark, f"kafka://{topics.address}/{name}-bad")) == 1


@pytest.mark.parametrize("how", [["--engine", "spark"], ["--stream", "--drain"]])
def test_purgatory_reads_and_writes_with_a_password(
    how: list[str],
    spark: "SparkSession",
    broker: "Broker",
    topics: "Topics",
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One input may be a folder: the options are for the topics only."""
    name = f"secure-ops-{how[0].strip('-')}"
    for topic in (name, f"{name}-found.outcomes", f"{name}-found.rejects"):
        topics.make(topic)
    topics.send(name, [b'{"id": "o", "keys": ["k"], "created": 1, "deadline": 50}', b"none"])
    events = tmp_path / "events"
    events.mkdir()
    (events / "1.ndjson").write_text('{"key": "k", "time": 20}\n')
    secure = f"kafka://{broker.secure}/{name}"
    command = ["purgatory", secure, str(events), *how, "--format", "ndjson"]
    command += ["--out", f"{secure}-found", "--kafka-config", str(config)]
    if "--stream" in how:
        command += ["--checkpoint", str(tmp_path / "checkpoint"), "--max-ahead", "100000"]

    found = report_of(command, capsys)

    assert (found["operations"], found["events"], found["rejected"]) == (
        2 if "--stream" in how else 1,
        1,
        1,
    )
    plain = f"kafka://{topics.address}/{name}-found"
    (outcome,) = (json.loads(value) for _, value in records_of(spark, f"{plain}.outcomes"))
    assert (outcome["id"], outcome["outcome"], outcome["at"]) == ("o", "completed", 20)
    assert len(records_of(spark, f"{plain}.rejects")) == 1


def test_a_wrong_password_is_named(
    spark: "SparkSession",
    broker: "Broker",
    topics: "Topics",
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The error has no secret."""
    topics.make("secure-refused")
    config = tmp_path / "client.properties"
    config.write_text(broker.client_properties("looking glass"))
    command = ["idle", f"kafka://{broker.secure}/secure-refused", "--engine", "spark"]
    command += ["--timeout", "1", "--out", str(tmp_path / "out"), "--kafka-config", str(config)]

    assert run(command) == 2

    error = capsys.readouterr().err
    assert "Kafka refused the user or the password" in error
    assert "looking glass" not in error
