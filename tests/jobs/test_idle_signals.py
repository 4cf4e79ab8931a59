"""Ctrl-C and SIGTERM: temporary files are removed, and a stream ends normally."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.realtime,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("needs_spark"),
]

ROOT = Path(__file__).parents[2]
QUICK = ["--master", "local[1]", "--conf", "spark.driver.memory=512m"]
TABLE = ["--key", "key", "--time", "t", "--timeout", "30", "--json"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of the input, beside a folder for all temporary files."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("key,t\nk,100\n")
    return tmp_path


def interrupted(
    folder: Path, arguments: list[str], when: Callable[[], bool], number: signal.Signals
) -> tuple[int, str, str]:
    """Run `aiowheel idle`, send a signal once *when* is true; return exit code and outputs."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "aiowheel", "idle", str(folder / "in"), *TABLE, *QUICK, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths, "TMPDIR": str(folder / "tmp")},
    )
    try:
        while not when():
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(number)
        out, err = process.communicate(timeout=200)
    finally:
        process.kill()
    return process.returncode, out, err


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_over_files(number: signal.Signals, folder: Path) -> None:
    """The run is interrupted after Spark has started."""
    out = folder / "idle.csv"

    result = interrupted(
        folder,
        ["--engine", "spark", "--out", str(out)],
        lambda: any((folder / "tmp").glob("aiowheel-spark-*/spark.log")),
        number,
    )

    assert result == (130, "", "")
    assert sorted(path.name for path in folder.iterdir()) == ["in", "tmp"]
    assert list((folder / "tmp").iterdir()) == []


@pytest.mark.spark_cluster
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stream(number: signal.Signals, folder: Path) -> None:
    """A signal is the normal end of a stream: exit code 0, and the report."""
    out = folder / "out"

    code, printed, err = interrupted(
        folder, ["--stream", "--out", str(out)], (out / "checkpoint/commits/0").exists, number
    )

    assert (code, json.loads(printed)["ended"]) == (0, "stopped")
    assert [json.loads(line)["rows"] for line in err.splitlines()] == [1]
    assert list((folder / "tmp").iterdir()) == []
