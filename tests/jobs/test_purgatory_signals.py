"""Ctrl-C and SIGTERM are how a streaming purgatory ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUICK = ["--shards", "1", "--master", "local[1]", "--conf", "spark.driver.memory=512m"]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.realtime
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("needs_spark")
@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.spark_cluster)],
)
def test_a_stream_that_is_told_to_end_reports(number: signal.Signals, tmp_path: Path) -> None:
    """The exit code is 0, and nothing on stderr tells of Spark's connection."""
    operations, events, out = (tmp_path / name for name in ("operations", "events", "out"))
    for folder in (operations, events, tmp_path / "tmp"):
        folder.mkdir()
    (operations / "0.ndjson").write_text('{"id": "o", "keys": ["a"], "created": 1}\n')
    (events / "0.ndjson").write_text('{"key": "a", "time": 2}\n')
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "aiowheel", "purgatory", str(operations), str(events)]
    process = subprocess.Popen(
        [*command, "--stream", "--out", str(out), "--json", *QUICK],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths, "TMPDIR": str(tmp_path / "tmp")},
    )
    try:
        while not (out / "checkpoint/commits/0").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(number)
        printed, errors = process.communicate(timeout=200)
    finally:
        process.kill()

    assert process.returncode == 0
    assert json.loads(printed)["ended"] == "stopped"
    assert [line for line in errors.splitlines() if not line.startswith("aiowheel: batch")] == []
    assert list((tmp_path / "tmp").iterdir()) == []
