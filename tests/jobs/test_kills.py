"""Streams of files whose executors, workers or drivers are killed at random moments.

`make test-cluster` runs them, with 20 kills each; `make test-cluster KILLS=3` is quicker.
"""

from functools import partial
from pathlib import Path

import pytest

from aiowheel.jobs.schemas import OUTCOMES
from aiowheel.rules import NO_VALUE, Ending, Event

from . import kills
from .test_cluster import finish, kill_tree, start, wait_until

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.spark_cluster,
    pytest.mark.timeout(3_600),
    pytest.mark.usefixtures("needs_spark"),
]


def put(folder: Path, part: int, lines: list[str]) -> None:
    """Write a file that appears complete."""
    hidden = folder / f".{part}.ndjson"
    hidden.write_text("".join(f"{line}\n" for line in lines))
    hidden.rename(folder / f"{part}.ndjson")


@pytest.mark.parametrize("victim", kills.Victim)
def test_idle_keys(victim: kills.Victim, tmp_path: Path) -> None:
    """Every idle event is in the Parquet files once."""
    from aiowheel.jobs.idle.stream import read_idle_events

    folder, out = tmp_path / "touches", tmp_path / "out"
    folder.mkdir()
    command = ["idle", str(folder), *kills.IDLE, "--key", "key", "--time", "t"]
    command += ["--format", "ndjson", "--out", str(out)]

    kills.run_with_kills(
        victim,
        command,
        out / "checkpoint",
        lambda part: put(folder, part, kills.touch_lines(kills.touches(part))),
        tmp_path,
    )

    assert sorted(read_idle_events(out / "events")) == kills.expected_idle()


@pytest.fixture
def purgatory(tmp_path: Path) -> list[str]:
    """Return a command over two empty folders."""
    folders = tmp_path / "ops", tmp_path / "events"
    for folder in folders:
        folder.mkdir()
    command = ["purgatory", *map(str, folders), *kills.PURGATORY, "--format", "ndjson"]
    return [*command, "--out", str(tmp_path / "out")]


def put_part(part: int, tmp_path: Path) -> None:
    """Write a file of each table."""
    put(tmp_path / "ops", part, kills.operation_lines(kills.operations(part)))
    put(tmp_path / "events", part, kills.event_lines(kills.events(part)))


def outcomes(tmp_path: Path) -> list[Ending]:
    """Return every row that a reader of the folder finds."""
    from aiowheel.jobs.spark.sinks import read_batches

    found = read_batches(tmp_path / "out" / "outcomes", OUTCOMES).to_pylist()
    return sorted(Ending(*row.values()) for row in found)


@pytest.mark.parametrize("victim", kills.Victim)
def test_operations(victim: kills.Victim, purgatory: list[str], tmp_path: Path) -> None:
    """Every outcome is in the Parquet files once."""
    feed = partial(put_part, tmp_path=tmp_path)

    kills.run_with_kills(victim, purgatory, tmp_path / "out" / "checkpoint", feed, tmp_path)

    assert outcomes(tmp_path) == kills.expected_outcomes()


def test_the_end_of_a_killed_driver_is_finished(purgatory: list[str], tmp_path: Path) -> None:
    """The next run ends the stream with any options, and without the rows that came later."""
    for part in range(kills.PARTS):
        put_part(part, tmp_path)
    command = [*purgatory, "--json", "--master", "local[2]"]

    process = start([*command, "--drain"], tmp_path)
    wait_until((tmp_path / "out" / "checkpoint" / "flush" / "flush-0").exists, process)
    kill_tree(process.pid)
    process.communicate()
    late = Event("a1", kills.PARTS * kills.PART_MS, NO_VALUE)
    put(tmp_path / "events", kills.PARTS, kills.event_lines([late]))
    report = finish(start([*command, "--once"], tmp_path))

    counts = [report[name] for name in ("ended", "rows", "late", "pending")]
    assert counts == ["drained", 0, 0, 0]
    assert outcomes(tmp_path) == kills.expected_outcomes()
