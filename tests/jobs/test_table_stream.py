"""Idle detection over a growing table of touches, compared with the wheel."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aiowheel.cli import run
from aiowheel.cli._idle_stream_report import StreamTally
from aiowheel.readers import Format, Unit
from aiowheel.recipes._idle_trace import idle_events

pytest.importorskip("pyspark")

from aiowheel.jobs.idle.stream import read_idle_events
from aiowheel.jobs.idle.table_stream import IdleTableStream
from aiowheel.jobs.schemas import REJECTS
from aiowheel.jobs.spark.checkpoint import Checkpoint
from aiowheel.jobs.spark.sinks import read_batches
from aiowheel.jobs.spark.sources import Source
from aiowheel.jobs.spark.stream_run import StreamRun, Until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT = 10
FAR = 88_888_888_888_888  # milliseconds: the year 4786


def put(file: Path, rows: list[tuple[object, object]]) -> None:
    """Write a file of JSON lines that appears complete."""
    hidden = file.with_name(f".{file.name}")
    hidden.write_text("".join(f"{json.dumps({'key': key, 't': t})}\n" for t, key in rows))
    hidden.rename(file)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_table_stream_continues_and_ends(spark: "SparkSession", tmp_path: Path) -> None:
    """With bad rows and a late one; two runs give the result of one."""
    folder = tmp_path / "in"
    folder.mkdir()
    stream = IdleTableStream(
        touches=Source.of_stream(str(folder), Format.NDJSON, 1, 1),
        out=str(tmp_path / "events"),
        rejects=str(tmp_path / "rejects"),
        checkpoint=Checkpoint(tmp_path / "checkpoint"),
        unit=Unit.MS,
        timeout=TIMEOUT,
        max_lateness_ms=20,
        earliest=1,
        latest=None,
        limit=FAR,
        shards=2,
    )
    tally = StreamTally(lambda *_: None)
    first: list[tuple[int, str]] = [(100, "a"), (90, "b"), (110, "a"), (105, "c")]
    second = [(300, "d"), (91, "b"), (140, "é,")]  # 91 is late by 19, within the bound

    put(folder / "1.ndjson", [*first, (FAR, "a"), (0, "a"), (-5, "a"), (7, ""), ("x", "a")])
    assert StreamRun(stream, spark, tally.take).run(Until.ONCE) is Until.ONCE
    put(folder / "2.ndjson", [*second])
    put(folder / "3.ndjson", [(108, "a")])  # more than 20 behind 300
    for number in (2, 3):
        os.utime(folder / f"{number}.ndjson", (2e9 + number, 2e9 + number))  # sets the order
    assert StreamRun(stream, spark, tally.take).run(Until.DRAINED) is Until.DRAINED

    found = list(read_idle_events(tmp_path / "events"))
    assert found == list(idle_events(sorted([*first, *second]), TIMEOUT))
    assert sum(stream.written.values()) == len(found)
    assert (tally.rows, tally.rejected, tally.late) == (8, 5, 1)
    rejects = read_batches(tmp_path / "rejects", REJECTS).to_pylist()
    reasons = sorted(row["reason"].partition(" beyond")[0] for row in rejects)
    assert reasons == [
        "is no record of this table",
        "the key is empty",
        "time '-5' is not a whole number >= 0",
        "time '0' is before 1",
        f"time '{FAR}' is",
    ]
    assert {json.loads(row["raw"])["t"] for row in rejects} == {FAR, 0, -5, 7, "x"}
    assert all(row["source"].endswith("1.ndjson") for row in rejects)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--checkpoint", "ck", "--key", "user"], "--key is for files, not for a table of key"),
        (["--checkpoint", "ck", "--strict"], "--strict is for files, not for a table of key"),
        ([], "kafka://host:1/idle: needs --checkpoint, a folder on a disk that the driver and"),
        (["--checkpoint", "s3a://lake/ck"], "s3a://lake/ck: --checkpoint must be a folder on a"),
        (["--checkpoint", "ck", "--once", "--drain"], "--once and --drain exclude each other"),
        (["--checkpoint", "in/ck"], "--checkpoint must be outside the watched folder, got in/ck"),
        (["--checkpoint", "ck", "--rejects", "s3://a/b"], "URI must be "),
        (["--checkpoint", "ck", "--format", "tsv"], "format must be parquet, ndjson, csv, got tsv"),
    ],
)
def test_a_table_stream_refuses_impossible_options(
    more: list[str],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The error comes before Spark starts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    command = ["idle", "in", "--stream", "--timeout", "30", "--out", "kafka://host:1/idle"]

    assert run([*command, *more]) == 2

    assert reason in capsys.readouterr().err
