"""Signals end a streaming purgatory normally; a dead Java is a failure."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

pytestmark = [
    pytest.mark.spark_cluster,
    pytest.mark.slow,
    pytest.mark.realtime,
    pytest.mark.usefixtures("needs_spark"),
]

ROOT = Path(__file__).parents[2]
QUICK = ["--shards", "1", "--master", "local[1]", "--conf", "spark.driver.memory=512m"]

Process = subprocess.Popen[str]


@contextmanager
def streaming(folder: Path) -> Generator[Process]:
    """Run a stream over two files in its own process group; kill all of it at the end."""
    operations, events = folder / "operations", folder / "events"
    for each in (operations, events, folder / "tmp"):
        each.mkdir()
    (operations / "0.ndjson").write_text('{"id": "o", "keys": ["a"], "created": 1}\n')
    (events / "0.ndjson").write_text('{"key": "a", "time": 2}\n')
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "aiowheel", "purgatory", str(operations), str(events)]
    with subprocess.Popen(
        [*command, "--stream", "--out", str(folder / "out"), "--json", *QUICK],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths, "TMPDIR": str(folder / "tmp")},
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until(ready: Callable[[], bool], process: Process) -> None:
    """Poll until *ready* holds; fail if the process exits first."""
    while not ready():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def batch_is_done(folder: Path) -> bool:
    """Return whether the first micro-batch has finished."""
    return (folder / "out/checkpoint/commits/0").exists()


def java_begins(folder: Path) -> bool:
    """Return whether the JVM is starting."""
    return any((folder / "tmp").glob("aiowheel-spark-*/spark.log"))


def messages(errors: str) -> list[str]:
    """Return the lines of stderr without the reports of batches."""
    return [line for line in errors.splitlines() if not line.startswith('{"batch": ')]


@pytest.mark.posix
@pytest.mark.parametrize(
    ("when", "tell", "number"),
    [
        (batch_is_done, os.kill, signal.SIGINT),
        (batch_is_done, os.killpg, signal.SIGTERM),
        (java_begins, os.killpg, signal.SIGTERM),
    ],
)
def test_a_stream_reports_after_a_signal(
    when: Callable[[Path], bool],
    tell: Callable[[int, int], None],
    number: signal.Signals,
    tmp_path: Path,
) -> None:
    """The exit code is 0, and stderr has no error of Spark's connection."""
    with streaming(tmp_path) as process:
        wait_until(lambda: when(tmp_path), process)
        tell(process.pid, number)
        printed, errors = process.communicate(timeout=200)

    assert process.returncode == 0
    assert json.loads(printed)["ended"] == "stopped"
    assert messages(errors) == []
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_dead_java_gives_one_line(tmp_path: Path) -> None:
    """The exit code is 1; the next run continues."""
    with streaming(tmp_path) as process:
        wait_until(lambda: batch_is_done(tmp_path), process)
        for child in psutil.Process(process.pid).children(recursive=True):
            if child.name() == "java":
                child.kill()
        _, errors = process.communicate(timeout=200)

    line = "aiowheel: Spark's Java process ended unexpectedly (--verbose shows its log)"
    assert (process.returncode, messages(errors)) == (1, [line])
    assert list((tmp_path / "tmp").iterdir()) == []
