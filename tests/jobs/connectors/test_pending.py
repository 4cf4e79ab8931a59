"""The state of a stream on a cluster, with the release of Spark of the connectors.

It is not the newest one: executors of Spark 4.1 can read state only in a session that has started
its streams (SPARK-58973).
"""

from pathlib import Path

import pytest

from aiowheel.rules import NO_VALUE, Event, Operation
from tests.jobs.kills import event_lines, operation_lines
from tests.jobs.test_cluster import CONF, finish, start

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.realtime,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(600),
]


def test_pending_operations_are_counted_on_a_cluster(tmp_path: Path) -> None:
    """A stream that continues counts them at its start, and `aiowheel pending` lists them."""
    conf = [part for one in CONF for part in ("--conf", one)]
    master = ["--master", "local-cluster[2,1,1024]", *conf, "--json"]
    folders = [tmp_path / name for name in ("ops", "events")]
    for folder in folders:
        folder.mkdir()
    command = ["purgatory", *map(str, folders), "--stream", "--once", "--unit", "ms"]
    command += ["--shards", "2", "--max-lateness", "1", "--out", str(tmp_path / "out"), *master]

    for part in range(2):
        operations = [
            Operation(f"{part}-{number}", ("a", "b"), (NO_VALUE,) * 2, 2, 1_000, 9_000_000)
            for number in range(10)
        ]
        lines = operation_lines(operations), event_lines([Event("a", 1_500, NO_VALUE)])
        for folder, text in zip(folders, lines, strict=True):
            (folder / f"{part}.ndjson").write_text("\n".join(text), encoding="utf-8")
        report = finish(start(command, tmp_path))
        assert (report["pending_before"], report["pending"]) == (part * 10, part * 10 + 10)

    checkpoint = str(tmp_path / "out" / "checkpoint")
    found = finish(start(["pending", "--checkpoint", checkpoint, *master], tmp_path))
    assert found["pending"] == 20
