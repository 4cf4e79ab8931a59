"""A stream on a standalone cluster whose processes are killed at random moments."""

import json
import os
import random
import time
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial
from pathlib import Path

from aiowheel.jobs.operations.shard import Shard
from aiowheel.jobs.spark.checkpoint import Checkpoint
from aiowheel.recipes._idle_trace import idle_events
from aiowheel.rules import NEVER, NO_VALUE, Ending, Event, Operation

from .test_cluster import (
    CONF,
    executors,
    finish,
    kill_tree,
    standalone,
    start,
    start_worker,
    wait_until,
)

KILLS = int(os.environ.get("AIOWHEEL_KILLS", "20"))
PARTS = KILLS + 2  # parts of the input: an undisturbed one, one before each kill, and a last one
ROWS = 1_000  # rows of a table in each part
PART_MS = 10_000
TIMEOUT_MS = 5_000
TICK_MS = 10
SHARDS = 4
#: The options of both kinds of streams; a part of the input may make several micro-batches.
STREAM = f"--stream --unit ms --max-lateness {2 * PART_MS // 1_000} --shards {SHARDS}".split()
IDLE = [*STREAM, "--timeout", str(TIMEOUT_MS // 1_000)]
PURGATORY = [*STREAM, "--tick", str(TICK_MS)]


class Victim(StrEnum):
    """The process that is killed, always with all of its children."""

    EXECUTOR = "executor"
    WORKER = "worker"
    DRIVER = "driver"


def run_with_kills(
    victim: Victim,
    command: list[str],
    checkpoint: Path,
    feed: Callable[[int], object],
    tmp_path: Path,
) -> None:
    """Run a stream to its end, and kill *victim* with SIGKILL `KILLS` times.

    Each kill is at a random moment after the start of a micro-batch with new rows, at most as long
    after it as the first micro-batch took.

    Args:
        victim: The process to kill. Spark replaces an executor; a worker and a driver are
            restarted.
        command: The command of the stream, which follows its input, without the master.
        checkpoint: The checkpoint of the stream.
        feed: Writes the part of the input with the given number.
        tmp_path: The folder for the files of all processes.
    """
    source = random.Random(f"{victim} {command[0]}")
    with standalone(tmp_path) as (master, workers):
        settings = [*CONF, f"spark.sql.shuffle.partitions={SHARDS}"]
        conf = [part for one in settings for part in ("--conf", one)]
        command = [*command, "--json", "--master", master, *conf]
        process = start(command, tmp_path)
        try:
            feed(0)
            wait_until(lambda: Checkpoint(checkpoint).last_finished_batch() >= 0, process)
            duration = seconds_of_first_batch(checkpoint)
            for moment in range(1, PARTS - 1):
                wait_until(lambda: all(executors(worker.pid) for worker in workers), process)
                begun = newest_batch(checkpoint)
                feed(moment)
                wait_until(partial(has_gone_on, checkpoint, begun), process)
                time.sleep(source.random() * duration)
                if victim is Victim.DRIVER:
                    kill_tree(process.pid)
                    process.communicate()
                    process = start(command, tmp_path)
                elif victim is Victim.WORKER:
                    killed = workers.pop(0)
                    kill_tree(killed.pid)
                    killed.wait()
                    workers.append(start_worker(tmp_path / f"worker-after-{moment}", master))
                else:
                    for executor in executors(source.choice(workers).pid):
                        kill_tree(executor.pid)
            feed(PARTS - 1)
            Checkpoint(checkpoint).request_flush()
            report = finish(process)
        finally:
            kill_tree(process.pid)
    assert (report["ended"], report["late"]) == ("drained", 0)


def newest_batch(checkpoint: Path) -> int:
    """Return the number of the last started micro-batch; -1 before the first."""
    names = (file.name for file in (checkpoint / "offsets").glob("[0-9]*"))
    return max(map(int, names), default=-1)


def has_gone_on(checkpoint: Path, batch: int) -> bool:
    """Return whether a micro-batch after *batch* has started."""
    return newest_batch(checkpoint) > batch


def seconds_of_first_batch(checkpoint: Path) -> float:
    """Return the seconds between the start and the end of the first micro-batch."""
    begun, ended = (checkpoint / folder / "0" for folder in ("offsets", "commits"))
    return ended.stat().st_mtime - begun.stat().st_mtime


def touches(part: int) -> list[tuple[int, str]]:
    """Return a part of the touches, unordered."""
    source = random.Random(part)
    first = part * PART_MS
    return [(first + source.randrange(PART_MS), f"k{source.randrange(400)}") for _ in range(ROWS)]


def operations(part: int) -> list[Operation]:
    """Return a part of the operations, on any or all of two keys."""
    source = random.Random(part + PARTS)
    found: list[Operation] = []
    for number in range(part * ROWS, (part + 1) * ROWS):
        keys = tuple(f"{family}{source.randrange(400)}" for family in "ab")
        created = part * PART_MS + source.randrange(PART_MS)
        wanted = source.choice((1, 2))
        least = (NO_VALUE,) * 2
        found.append(Operation(f"o{number}", keys, least, wanted, created, created + TIMEOUT_MS))
    return found


def events(part: int) -> list[Event]:
    """Return a part of the events."""
    source = random.Random(part + 2 * PARTS)
    return [
        Event(
            f"{source.choice('ab')}{source.randrange(400)}",
            part * PART_MS + source.randrange(PART_MS),
            NO_VALUE,
        )
        for _ in range(ROWS)
    ]


def touch_lines(rows: Iterable[tuple[int, str]]) -> list[str]:
    """Return touches as lines of JSON."""
    return [json.dumps({"key": key, "t": t}) for t, key in rows]


def operation_lines(rows: Iterable[Operation]) -> list[str]:
    """Return operations without thresholds as lines of JSON."""
    return [
        json.dumps(
            {
                "id": row.id,
                "keys": list(row.keys),
                "mode": "any" if row.wanted == 1 else "all",
                "created": row.created,
                "deadline": row.deadline,
            }
        )
        for row in rows
    ]


def event_lines(rows: Iterable[Event]) -> list[str]:
    """Return events without values as lines of JSON."""
    return [json.dumps({"key": row.key, "time": row.time}) for row in rows]


def expected_idle() -> list[tuple[int, str]]:
    """Return the idle events that one process finds."""
    rows = sorted(touch for part in range(PARTS) for touch in touches(part))
    return sorted(idle_events(rows, TIMEOUT_MS))


def expected_outcomes() -> list[Ending]:
    """Return the outcomes that one process finds."""
    shard = Shard(TICK_MS)
    for part in range(PARTS):
        shard.feed(operations(part), events(part))
    return sorted(shard.settle(NEVER - 1))
