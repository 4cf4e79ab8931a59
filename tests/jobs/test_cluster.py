"""Streams and runs that lose an executor or a worker neither lose nor duplicate an event.

Each run is a separate process, as users start it. `make test-cluster` runs them; they take minutes.
In `test_kills` executors, workers and drivers of streams are killed at many moments.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from aiowheel.jobs.spark.java import find_java, spark_java_home
from aiowheel.readers import Inputs, TimedRows, TimeFormat, Unit, time_parser
from benchmarks._ports import free_port

pytestmark = [
    pytest.mark.spark,
    pytest.mark.spark_cluster,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("needs_spark"),
]

ROOT = Path(__file__).parents[2]
NASA = "nasa-http-1995-08-01/nasa_19950801.tsv.gz"
NASA_30 = 8_020, "de305a7e321722b41ceebc17ca2ec2fe7460dbc703dc50202cfd0401ba099e05"
FILES = 8
CONF = ["spark.driver.memory=768m", "spark.executor.memory=768m", "spark.executor.cores=1"]
PATIENCE = 400.0
#: The first compiler alone: these Java processes live too briefly to gain from the second one.
QUICK_JAVA = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
#: Runs a command with a private mount of the folder that is the next argument.
OWN_DISK = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"']


class Arriving(NamedTuple):
    """A folder of files in the order of arrival, and the output folder of the stream over it."""

    folder: Path
    out: Path

    def command(self, master: str) -> list[str]:
        """Return the command `aiowheel idle` over the folder, to its end."""
        command = ["idle", str(self.folder), "--stream", "--drain", "--key", "key", "--time", "t"]
        command += ["--timeout", "30", "--files-per-batch", "1", "--out", str(self.out), "--json"]
        return [*command, "--master", master, *(part for one in CONF for part in ("--conf", one))]

    def has_committed(self, count: int) -> bool:
        """Return whether *count* micro-batches have finished."""
        commits = self.out / "checkpoint" / "commits"
        return sum(1 for path in commits.glob("*") if path.name.isdigit()) >= count


@pytest.fixture
def arriving(data_folder: Path, tmp_path: Path) -> Arriving:
    """Return the requests to a web server on one day, in eight files."""
    parse = time_parser(TimeFormat.EPOCH, Unit.S)
    rows = TimedRows(Inputs([str(data_folder / NASA)]), key="host", time="time", parse_time=parse)
    lines = [
        f"{key}\t{t}\n"
        for batch in rows.batches()
        for t, key in zip(batch.times, batch.keys, strict=True)
    ]
    folder, step = tmp_path / "arriving", -(-len(lines) // FILES)
    folder.mkdir()
    for number in range(FILES):
        file = folder / f"{number}.tsv"
        part = lines[number * step : (number + 1) * step]
        file.write_text("key\tt\n" + "".join(part), encoding="utf-8")
        os.utime(file, (1e9 + number, 1e9 + number))
    return Arriving(folder, tmp_path / "out")


def start(command: list[str], tmp_path: Path) -> "subprocess.Popen[str]":
    """Start `aiowheel` in its own session, so that all of its children can be killed."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    (tmp_path / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "aiowheel", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {**QUICK_JAVA, "PYTHONPATH": paths, "TMPDIR": str(tmp_path / "tmp")},
        start_new_session=True,
    )


def finish(process: "subprocess.Popen[str]", patience: float = PATIENCE) -> dict[str, int | str]:
    """Wait for the process to exit; return its report."""
    try:
        out, err = process.communicate(timeout=patience)
    finally:
        kill_tree(process.pid)
    assert process.returncode == 0, err
    report: dict[str, int | str] = json.loads(out)
    return report


def kill_tree(pid: int) -> None:
    """Kill a process that a test started, and its descendants."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in [*process.children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


def executors(pid: int) -> list[psutil.Process]:
    """Return the executors among the descendants of a process."""
    found: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                line = child.cmdline()
                if line and line[0].endswith("java") and "CoarseGrained" in " ".join(line):
                    found.append(child)
    return found


def wait_until(
    condition: Callable[[], bool], process: "subprocess.Popen[str]", patience: float = PATIENCE
) -> None:
    """Poll until the condition holds; fail if the process exits first."""
    deadline = time.monotonic() + patience
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.realtime
def test_a_stream_survives_a_killed_executor(arriving: Arriving, tmp_path: Path) -> None:
    """On local-cluster: tasks of the killed executor run again, and it is replaced."""
    process = start(arriving.command("local-cluster[2,1,1024]"), tmp_path)
    wait_until(partial(arriving.has_committed, 2), process)

    executors(process.pid)[0].kill()

    report = finish(process)
    assert (report["total_events"], report["sha256"], report["late"]) == (*NASA_30, 0)
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.realtime
def test_a_run_over_files_survives_a_killed_worker(data_folder: Path, tmp_path: Path) -> None:
    """A batch run on a standalone master writes the same file as the wheel."""
    spans = data_folder / "nezha-trainticket/nezha-trainticket-traces.tar.gz"
    command = ["idle", str(spans), "--key", "PodName", "--time", "StartTimeUnixNano"]
    command += ["--unit", "ns", "--timeout", "30", "--engine", "spark", "--json"]
    command += ["--out", str(tmp_path / "idle.csv"), "--conf", "spark.sql.shuffle.partitions=200"]
    command += [part for one in CONF for part in ("--conf", one)]
    with standalone(tmp_path) as (master, workers):
        process = start([*command, "--master", master], tmp_path)
        wait_until(lambda: bool(executors(workers[0].pid)), process)
        time.sleep(4)

        kill_tree(workers[0].pid)

        report = finish(process)
    sha256 = "adae49b14e4ab164624053b6e6f6a4dd559895b097dd107bd894e91468feb9a7"
    assert (report["idle_events"], report["sha256"]) == (2_065, sha256)


@pytest.mark.realtime
def test_workers_with_separate_disks_fail_the_run(tmp_path: Path) -> None:
    """Each worker has a private folder in place of the driver's output; no output remains."""
    if subprocess.run([*OWN_DISK, str(tmp_path), "true"], check=False).returncode:
        pytest.skip("this machine gives no process mounts of its own")
    (tmp_path / "result").mkdir()
    rows = [f'{{"id": "{n}", "keys": ["a"], "created": 1, "deadline": 9}}\n' for n in range(1_000)]
    (tmp_path / "ops.ndjson").write_text("".join(rows))
    (tmp_path / "events.ndjson").write_text('{"key": "a", "time": 2}\n')
    command = ["purgatory", str(tmp_path / "ops.ndjson"), str(tmp_path / "events.ndjson")]
    command += ["--engine", "spark", "--out", str(tmp_path / "result" / "found"), "--json"]
    command += [part for one in CONF for part in ("--conf", one)]
    with standalone(tmp_path, own=tmp_path / "result") as (master, _):
        process = start([*command, "--master", master], tmp_path)
        try:
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            kill_tree(process.pid)

    assert (process.returncode, out) == (1, "")
    assert "outcomes: 1,000 rows were written, 0 can be read back" in err
    assert list((tmp_path / "result").iterdir()) == []


@contextlib.contextmanager
def standalone(
    tmp_path: Path, own: Path | None = None
) -> "Generator[tuple[str, list[subprocess.Popen[bytes]]]]":
    """Yield a master and two workers of one core each, from the installed package.

    Each worker has a private mount of the folder *own*. A test may replace a worker that it has
    killed.
    """
    workers: list[subprocess.Popen[bytes]] = []
    port = str(free_port())
    options = ("--host", "127.0.0.1", "--port", port)
    master = launch(tmp_path / "master", "master.Master", *options, until="New state: ALIVE")
    try:
        address = f"spark://127.0.0.1:{port}"
        workers.extend(start_worker(tmp_path / f"worker{n}", address, own) for n in range(2))
        yield address, workers
    finally:
        for process in (master, *workers):
            kill_tree(process.pid)
            process.wait(10)


def start_worker(folder: Path, master: str, own: Path | None = None) -> "subprocess.Popen[bytes]":
    """Start a worker of one core; all of its files, also temporary ones, are in its own folder."""
    apart = [] if own is None else [*OWN_DISK, str(own)]
    options = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", master)
    return launch(folder, "worker.Worker", *options, until="Successfully registered", before=apart)


def launch(
    folder: Path, kind: str, *arguments: str, until: str, before: Sequence[str] = ()
) -> "subprocess.Popen[bytes]":
    """Start one of Spark's daemons, prefixed by *before*; wait for a text in its log."""
    import pyspark

    log = folder / "log"
    (folder / "tmp").mkdir(parents=True)
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    command = [
        *before,
        str(program),
        f"org.apache.spark.deploy.{kind}",
        "--webui-port",
        "0",
        *arguments,
    ]
    environment = os.environ | {
        **QUICK_JAVA,  # executors inherit the environment of their worker
        "JAVA_HOME": str(spark_java_home(find_java())),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "TMPDIR": str(folder / "tmp"),
    }
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, env=environment, start_new_session=True
        )
    deadline = time.monotonic() + PATIENCE
    while until not in log.read_text(encoding="utf-8", errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            kill_tree(process.pid)
            pytest.fail(log.read_text(encoding="utf-8", errors="replace"))
        time.sleep(0.2)
    return process
