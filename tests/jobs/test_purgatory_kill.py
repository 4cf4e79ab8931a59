"""A streaming purgatory whose driver is killed, and started again from its checkpoint."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from aiowheel.jobs.operations.files import write_events, write_operations
from aiowheel.jobs.operations.schemas import OUTCOMES
from aiowheel.jobs.operations.shard import Shard
from aiowheel.rules import NEVER, Ending, Event, Operation

pytestmark = [pytest.mark.realtime, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
FILES = 4
SPAN_MS = 40_000
PATIENCE_SECONDS = 300  # a busy machine is no failure


def make_trace(seed: int) -> tuple[list[Operation], list[Event]]:
    """A trace in the order of its times, and many operations open at any time."""
    source = random.Random(seed)
    keys = [f"k{number}" for number in range(20)]
    operations: list[Operation] = []
    for number in range(2_000):
        watched = tuple(source.sample(keys, source.randrange(1, 6)))
        created = number * SPAN_MS // 2_000
        wanted = source.choice((1, len(watched)))
        thresholds = tuple(source.randrange(9) for _ in watched)
        deadline = created + source.randrange(12_000)
        operations.append(Operation(f"o{number}", watched, thresholds, wanted, created, deadline))
    events = [
        Event(source.choice(keys), number * SPAN_MS // 3_000, source.randrange(9))
        for number in range(3_000)
    ]
    return operations, events


@pytest.fixture
def command(needs_spark: None, tmp_path: Path) -> list[str]:
    """A command over a stream of some micro-batches, which ends when it has worked them off."""
    operations, events = make_trace(1)
    for name in ("ops", "events"):
        (tmp_path / name).mkdir()
    for number in range(FILES):
        first, last = number * SPAN_MS // FILES, (number + 1) * SPAN_MS // FILES
        write_operations(
            tmp_path / "ops" / f"{number}.parquet",
            [row for row in operations if first <= row.created < last],
        )
        write_events(
            tmp_path / "events" / f"{number}.parquet",
            [row for row in events if first <= row.time < last],
        )
    options = ["--stream", "--drain", "--tick", "10", "--shards", "4", "--files-per-batch", "1"]
    options += ["--out", str(tmp_path / "out"), "--master", "local[2]", "--json"]
    job = [sys.executable, "-m", "aiowheel", "purgatory", str(tmp_path / "ops")]
    return [*job, str(tmp_path / "events"), *options]


@contextmanager
def running(command: list[str], tmp_path: Path) -> Generator["subprocess.Popen[str]"]:
    """The command in a process of its own; nothing of it outlives the block."""
    temporary = tmp_path / "tmp"
    temporary.mkdir(exist_ok=True)
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": paths, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            kill(process)


def kill(process: "subprocess.Popen[str]") -> None:
    """SIGKILL to the driver, its JVM and its workers, at once."""
    if process.poll() is not None:
        return
    driver = psutil.Process(process.pid)
    for each in [driver, *driver.children(recursive=True)]:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            continue


def wait_for_batches(process: "subprocess.Popen[str]", checkpoint: Path, count: int) -> None:
    """Until so many micro-batches have begun."""
    limit = time.monotonic() + PATIENCE_SECONDS
    while len(list((checkpoint / "offsets").glob("[0-9]*"))) < count:
        if process.poll() is not None:
            pytest.fail(f"ended before batch {count}: {process.communicate()[1]}")
        assert time.monotonic() < limit, f"no batch {count} in {PATIENCE_SECONDS} seconds"
        time.sleep(0.05)


def endure(command: list[str], tmp_path: Path, kills: list[tuple[int, float]]) -> None:
    """Kill it during a micro-batch, so many seconds into it; run it to its end; compare."""
    checkpoint = tmp_path / "out" / "checkpoint"
    for batch, seconds in kills:
        with running(command, tmp_path) as process:
            wait_for_batches(process, checkpoint, batch)
            time.sleep(seconds)
            assert process.poll() is None, "it was over before it was killed"

    with running(command, tmp_path) as process:
        told, errors = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 0, errors
    assert json.loads(told)["ended"] == "drained"
    assert json.loads(told)["late"] == 0
    assert outcomes(tmp_path) == undisturbed()


def outcomes(tmp_path: Path) -> list[Ending]:
    """Every row that any reader of the folder sees."""
    from aiowheel.jobs.spark.sinks import read_batches

    table = read_batches(tmp_path / "out" / "outcomes", OUTCOMES)
    return sorted(Ending(*row.values()) for row in table.to_pylist())


def undisturbed() -> list[Ending]:
    """What one process finds."""
    operations, events = make_trace(1)
    shard = Shard(10)
    shard.feed(operations, events)
    return sorted(shard.settle(NEVER - 1))


@pytest.mark.spark_cluster
@pytest.mark.timeout(900)
def test_a_killed_driver_loses_and_doubles_nothing(command: list[str], tmp_path: Path) -> None:
    """Killed once, while a batch is worked off."""
    endure(command, tmp_path, [(2, 0.7)])


@pytest.mark.spark_cluster
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_driver_killed_three_times(seed: int, command: list[str], tmp_path: Path) -> None:
    """At points that nobody chose."""
    source = random.Random(seed)
    kills = [(batch, source.random() * 2) for batch in (1, 2, 4)]

    endure(command, tmp_path, kills)


@pytest.mark.spark_cluster
@pytest.mark.timeout(900)
def test_a_driver_killed_at_its_end_finishes_it(command: list[str], tmp_path: Path) -> None:
    """Whatever the next run is asked for, and without the rows that came since."""
    with running(command, tmp_path) as process:
        wait_for(process, tmp_path / "out" / "checkpoint" / "flush" / "flush-0")
        kill(process)
    write_events(tmp_path / "events" / "late.parquet", [Event("k0", SPAN_MS, 9)])

    once = ["--once" if option == "--drain" else option for option in command]
    with running(once, tmp_path) as process:
        told, errors = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 0, errors
    report = json.loads(told)
    assert (report["ended"], report["rows"], report["late"], report["pending"]) == (
        "drained", 0, 0, 0,
    )  # fmt: skip
    assert outcomes(tmp_path) == undisturbed()


def wait_for(process: "subprocess.Popen[str]", file: Path) -> None:
    """Until a file is there."""
    limit = time.monotonic() + PATIENCE_SECONDS
    while not file.exists():
        if process.poll() is not None:
            pytest.fail(f"ended before {file}: {process.communicate()[1]}")
        assert time.monotonic() < limit, f"no {file} in {PATIENCE_SECONDS} seconds"
        time.sleep(0.01)
