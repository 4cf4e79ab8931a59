"""The recorder: the rows that it writes, when, and the rows that it drops."""

import asyncio
import errno
import gc
import math
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aiowheel import Outcome
from aiowheel.trace import TRACE_SCHEMA, TraceRecorder, _writer, read_trace, trace_files
from aiowheel.trace._batch import Batch
from aiowheel.trace._file import TraceFile

from .conftest import Fetch, Finish

NOON = 1_800_000_000_000_000_000  # the wall clock of these tests, ns


def recorder_at_noon(folder: Path, **limits: Any) -> TraceRecorder:
    """Return a recorder whose loop clock was 100.0 at noon."""
    return TraceRecorder(folder, run_id="r", clock=lambda: 100.0, wall_clock=lambda: NOON, **limits)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return the trace as plain rows."""
    rows: list[dict[str, Any]] = read_trace(folder).to_pylist()
    return rows


def test_a_row_holds_the_operation(tmp_path: Path, finish: Finish) -> None:
    """Every column of a completed operation holds the operation's own value."""
    with recorder_at_noon(tmp_path) as recorder:
        finish(
            recorder,
            keys=(("topic", 7), "all"),
            created=100.25,
            deadline=130.25,
            finished=101.0,
            completed_by=("topic", 7),
            checks=3,
        )

    assert rows_of(tmp_path) == [
        {
            "run_id": "r",
            "purgatory": "room",
            "operation_id": 0,
            "kind": "Fetch",
            "keys": ["('topic', 7)", "all"],
            "created": NOON + 250_000_000,
            "deadline": NOON + 30_250_000_000,
            "finished": NOON + 1_000_000_000,
            "outcome": "completed",
            "completed_by": "('topic', 7)",
            "lateness": None,
            "checks": 3,
        }
    ]


@pytest.mark.parametrize(
    ("outcome", "finished", "lateness"),
    [
        (Outcome.EXPIRED, 102.5, 500_000_000),
        (Outcome.EXPIRED, 102.0, 0),
        (Outcome.EXPIRED, 101.5, -500_000_000),  # its purgatory was closed early
        (Outcome.COMPLETED, 102.5, None),
        (Outcome.CANCELLED, 102.5, None),
        (Outcome.FAILED, 102.5, None),
    ],
)
def test_only_expired_operations_are_late(
    tmp_path: Path, finish: Finish, outcome: Outcome, finished: float, lateness: int | None
) -> None:
    """Lateness is finished minus deadline, and only of an expired operation."""
    with recorder_at_noon(tmp_path) as recorder:
        finish(recorder, deadline=102.0, finished=finished, outcome=outcome)

    assert [row["lateness"] for row in rows_of(tmp_path)] == [lateness]


@pytest.mark.parametrize("deadline", [math.inf, 1e300])
def test_an_operation_without_a_deadline_has_none(
    tmp_path: Path, finish: Finish, deadline: float
) -> None:
    """Infinity, and a time out of range, become null and not a wrapped number."""
    with recorder_at_noon(tmp_path) as recorder:
        finish(recorder, deadline=deadline)

    assert [row["deadline"] for row in rows_of(tmp_path)] == [None]


class Unprintable:
    """A key whose repr raises."""

    def __repr__(self) -> str:
        raise RuntimeError


def test_an_unprintable_key_keeps_the_other_rows(tmp_path: Path, finish: Finish) -> None:
    """A repr that raises and a text that is not UTF-8 still become texts."""
    with recorder_at_noon(tmp_path) as recorder:
        finish(recorder, keys=(Unprintable(), "caf\udce9", None, "café"))
        finish(recorder)

    assert [row["keys"] for row in rows_of(tmp_path)] == [
        ["<Unprintable without repr>", "caf\\udce9", "None", "café"],
        ["topic"],
    ]


class Unruly:
    """A key whose hash can be made to raise."""

    refuses = False

    def __hash__(self) -> int:
        if self.refuses:
            raise RuntimeError
        return 1


def test_an_unhashable_key_loses_only_its_row(tmp_path: Path, finish: Finish) -> None:
    """The purgatory reports the error; the neighbouring rows keep their own keys."""
    unruly = Unruly()
    with recorder_at_noon(tmp_path) as recorder:
        finish(recorder, keys=("a", "b"), completed_by="b")
        unruly.refuses = True
        with pytest.raises(RuntimeError):
            finish(recorder, keys=("c", unruly), completed_by="c")
        finish(recorder, keys=("d",))

    assert [(row["keys"], row["completed_by"]) for row in rows_of(tmp_path)] == [
        (["a", "b"], "b"),
        (["d"], None),
    ]


class Slow(Fetch):
    """An operation of another kind."""


def test_rows_keep_their_own_purgatory_kind_and_timeout(tmp_path: Path) -> None:
    """Values that consecutive rows share are stored once, and are correct for other rows."""
    rows = [("a", Fetch, 2.0), ("a", Slow, 3.0), ("b", Fetch, math.inf), ("a", Fetch, 2.0)]
    with recorder_at_noon(tmp_path) as recorder:
        for purgatory, kind, deadline in rows:
            recorder.operation_finished(purgatory, kind(deadline=deadline))

    assert [
        (row["purgatory"], row["kind"], row["deadline"] and (row["deadline"] - NOON) / 1e9 + 100)
        for row in rows_of(tmp_path)
    ] == [("a", "Fetch", 2.0), ("a", "Slow", 3.0), ("b", "Fetch", None), ("a", "Fetch", 2.0)]


def test_the_number_of_checks_is_capped(tmp_path: Path, finish: Finish) -> None:
    """A count beyond 32 bits affects neither its row nor its neighbours."""
    with recorder_at_noon(tmp_path) as recorder:
        finish(recorder, checks=1, keys=("a",))
        finish(recorder, checks=2**31, keys=("b",))
        finish(recorder, checks=3, keys=("c",))

    assert [(row["keys"], row["checks"]) for row in rows_of(tmp_path)] == [
        (["a"], 1),
        (["b"], 2**31 - 1),
        (["c"], 3),
    ]


def test_keys_that_never_repeat_are_written(tmp_path: Path) -> None:
    """More distinct texts than fit into a Parquet dictionary are written."""
    names = [f"{number:0100}" for number in range(15_000)]
    with recorder_at_noon(tmp_path) as recorder:
        for name in names:
            recorder.operation_finished("room", Fetch(keys=(name,), completed_by=name))

    table = read_trace(tmp_path)
    assert table["keys"].to_pylist() == [[name] for name in names]
    assert table["completed_by"].to_pylist() == names


@pytest.mark.parametrize("number", [255, 256, 100_000])
def test_counts_of_any_size_are_kept(tmp_path: Path, finish: Finish, number: int) -> None:
    """Checks and keys are mostly small, and correct if they are large."""
    with recorder_at_noon(tmp_path) as recorder:
        finish(recorder, checks=number, keys=tuple(map(str, range(number))))
        finish(recorder)

    assert [(row["checks"], len(row["keys"])) for row in rows_of(tmp_path)] == [
        (number, number),
        (1, 1),
    ]


def test_every_operation_is_written_once_and_in_order(tmp_path: Path, finish: Finish) -> None:
    """Cutting batches and files neither loses, nor duplicates, nor reorders rows."""
    with recorder_at_noon(tmp_path, batch_rows=7, file_rows=20, queued_batches=1_000) as recorder:
        finish(recorder, times=1_000)

    assert read_trace(tmp_path)["operation_id"].to_pylist() == list(range(1_000))
    assert recorder.statistics().written == 1_000
    assert recorder.statistics().files == len(trace_files(tmp_path)) > 1


def test_a_batch_of_several_packed_parts_keeps_its_rows(tmp_path: Path) -> None:
    """Parts packed while the batch fills precede the part packed at its end."""
    with recorder_at_noon(tmp_path, batch_rows=100_000) as recorder:
        for number in range(9_001):
            keys = tuple(f"{number % 7}-{place}" for place in range(number % 4))
            operation = Fetch(keys=keys, completed_by=keys[-1] if keys else None, checks=number)
            recorder.operation_finished("room", operation)

    rows = rows_of(tmp_path)
    assert [row["checks"] for row in rows] == list(range(9_001))
    assert all(
        row["keys"] == [f"{number % 7}-{place}" for place in range(number % 4)]
        and row["completed_by"] == (row["keys"][-1] if row["keys"] else None)
        for number, row in enumerate(rows)
    )
    assert len(trace_files(tmp_path)) == 1


def test_a_full_file_is_closed(tmp_path: Path, finish: Finish) -> None:
    """A file takes whole batches and is closed at file_rows; the last file has the rest."""
    with recorder_at_noon(tmp_path, batch_rows=10, file_rows=20, queued_batches=100) as recorder:
        finish(recorder, times=45)

    files = [pq.ParquetFile(file) for file in trace_files(tmp_path)]
    groups = [
        [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        for file in files
    ]
    assert groups == [[10, 10], [10, 10], [5]]


def test_a_file_is_closed_at_its_size(tmp_path: Path, finish: Finish) -> None:
    """With a limit of one byte, every batch is a file."""
    with recorder_at_noon(tmp_path, batch_rows=10, file_bytes=1, queued_batches=100) as recorder:
        finish(recorder, times=30)

    assert len(trace_files(tmp_path)) == 3


def wait_for_files(folder: Path, count: int, pattern: str = "trace-*.parquet") -> None:
    """Wait until the writer's thread has closed *count* files, or made as many by *pattern*."""
    give_up = time.monotonic() + 30
    while len(list(folder.glob(pattern))) < count:
        assert time.monotonic() < give_up, f"the writer made no {pattern}"
        time.sleep(0.005)


@pytest.mark.realtime
def test_a_file_is_closed_at_its_age(tmp_path: Path, finish: Finish) -> None:
    """A file becomes visible after file_seconds although no further row comes."""
    with recorder_at_noon(tmp_path, file_seconds=0.05) as recorder:
        finish(recorder)
        recorder.flush()
        wait_for_files(tmp_path, 1)

        assert recorder.statistics().written <= 1
        assert len(rows_of(tmp_path)) == 1


@pytest.mark.realtime
@pytest.mark.parametrize("seconds", [math.inf, 10**400], ids=["inf", "no-float"])
async def test_a_file_without_an_age_takes_later_rows(
    tmp_path: Path, finish: Finish, seconds: float
) -> None:
    """The writer's thread waits for the next batch although a thread cannot wait for so long."""
    async with TraceRecorder(tmp_path, flush_seconds=seconds, file_seconds=seconds) as recorder:
        finish(recorder)
        recorder.flush()
        await asyncio.to_thread(wait_for_files, tmp_path, 1, ".trace-*.tmp")
        finish(recorder)

    assert recorder.statistics().written == 2


@pytest.mark.realtime
async def test_a_batch_is_handed_over_at_its_age(tmp_path: Path, finish: Finish) -> None:
    """On an event loop a single row reaches the disk without a following one."""
    async with TraceRecorder(tmp_path, flush_seconds=0.01, file_seconds=0.01) as recorder:
        finish(recorder)
        await asyncio.to_thread(wait_for_files, tmp_path, 1)

        assert len(rows_of(tmp_path)) == 1


def test_an_open_file_is_invisible(tmp_path: Path, finish: Finish) -> None:
    """An incomplete file is not listed as a trace file; after closing it is."""
    recorder = recorder_at_noon(tmp_path)
    finish(recorder)
    recorder.flush()
    with pytest.raises(FileNotFoundError, match=r"no trace file \(trace-\*\.parquet\)"):
        read_trace(tmp_path)

    recorder.close()

    assert len(rows_of(tmp_path)) == 1
    (file,) = tmp_path.iterdir()
    assert re.fullmatch(r"trace-r-.+-\d+-[0-9a-f]{16}-000001\.parquet", file.name)


def test_overload_drops_the_newest_rows_and_counts_them(
    tmp_path: Path, finish: Finish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that hangs costs rows, but neither memory nor time of the caller."""
    writes, disk_answers = threading.Event(), threading.Event()
    write = TraceFile.write

    def slow_write(self: TraceFile, batch: pa.RecordBatch) -> None:
        writes.set()
        assert disk_answers.wait(30)
        write(self, batch)

    monkeypatch.setattr(TraceFile, "write", slow_write)
    recorder = recorder_at_noon(tmp_path, batch_rows=10, queued_batches=2)
    finish(recorder, times=10)
    assert writes.wait(30)
    finish(recorder, times=490)
    disk_answers.set()
    recorder.close()

    statistics = recorder.statistics()
    kept = read_trace(tmp_path)["operation_id"].to_pylist()
    assert statistics.recorded == 500
    assert statistics.written + statistics.dropped == 500
    assert statistics.dropped >= 500 - 4 * 10
    # The kept rows are the oldest: whole batches from the start.
    assert kept == list(range(len(kept)))


def test_rows_after_closing_are_counted_as_dropped(tmp_path: Path, finish: Finish) -> None:
    """An operation that finishes after the recorder was closed is counted as dropped."""
    recorder = recorder_at_noon(tmp_path)
    finish(recorder)
    recorder.close()
    finish(recorder, times=3)
    recorder.close()

    statistics = recorder.statistics()
    assert (statistics.recorded, statistics.written, statistics.dropped) == (4, 1, 3)


def test_a_disk_error_loses_only_the_open_file(
    tmp_path: Path,
    finish: Finish,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After an error the next batch opens a new file; the lost rows are counted and logged."""
    write = TraceFile.write
    failures = [OSError(28, "No space left on device")]

    def failing_write(self: TraceFile, batch: pa.RecordBatch) -> None:
        if failures and self.rows:
            raise failures.pop()
        write(self, batch)

    monkeypatch.setattr(TraceFile, "write", failing_write)
    with recorder_at_noon(tmp_path, batch_rows=10, queued_batches=100) as recorder:
        finish(recorder, times=50)

    assert recorder.statistics().failed == 20
    assert read_trace(tmp_path)["operation_id"].to_pylist() == list(range(20, 50))
    assert "20 rows lost: [Errno 28] No space left on device" in caplog.text
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.posix
def test_a_folder_that_cannot_be_synced_loses_no_rows(
    tmp_path: Path, finish: Finish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network file systems refuse to sync a folder; the file is complete and visible."""
    sync = os.fsync

    def refuse_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    with recorder_at_noon(tmp_path) as recorder:
        finish(recorder, times=5)

    statistics = recorder.statistics()
    assert (statistics.written, statistics.failed, statistics.files) == (5, 0, 1)
    assert read_trace(tmp_path).num_rows == 5


def test_a_broken_file_that_cannot_be_removed_does_not_end_the_writer(
    tmp_path: Path, finish: Finish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that was temporarily read-only is used again; its rows are counted as lost."""
    write, unlink = TraceFile.write, Path.unlink
    refusals = [OSError(30, "Read-only file system") for _ in range(2)]

    def refused_write(self: TraceFile, batch: pa.RecordBatch) -> None:
        if len(refusals) == 2:
            raise refusals.pop()
        write(self, batch)

    def refused_unlink(self: Path, *, missing_ok: bool = False) -> None:
        if refusals:
            raise refusals.pop()
        unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(TraceFile, "write", refused_write)
    monkeypatch.setattr(Path, "unlink", refused_unlink)
    with recorder_at_noon(tmp_path, batch_rows=10, queued_batches=100) as recorder:
        finish(recorder, times=50)

    statistics = recorder.statistics()
    assert (statistics.failed, statistics.written) == (10, 40)
    assert read_trace(tmp_path)["operation_id"].to_pylist() == list(range(10, 50))


CRASHING = """
import os, sys, time
from pathlib import Path
from aiowheel import DelayedOperation, Outcome
from aiowheel.trace import TraceRecorder

folder = Path(sys.argv[1])
recorder = TraceRecorder(folder, batch_rows=100, file_rows=300, queued_batches=1000)
operation = DelayedOperation(1.0)
operation.force_complete()
for _ in range(1_050):
    recorder.operation_finished("room", operation)
while not list(folder.glob(".trace-*000004*")):
    time.sleep(0.005)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.one_build
@pytest.mark.posix
def test_a_crash_loses_no_closed_file(tmp_path: Path) -> None:
    """After SIGKILL every closed file is complete; only the rows of the open file are lost."""
    child = subprocess.Popen(
        [sys.executable, "-c", CRASHING, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child:
        assert child.stdout.readline() == "ready\n"
        os.kill(child.pid, signal.SIGKILL)

    assert [pq.read_metadata(file).num_rows for file in trace_files(tmp_path)] == [300, 300, 300]
    assert read_trace(tmp_path)["operation_id"].to_pylist() == list(range(900))


def test_a_run_needs_a_name_that_a_file_can_hold(tmp_path: Path) -> None:
    """The first rows would be lost otherwise."""
    with pytest.raises(ValueError, match=r"run_id must be text that is Unicode, got '\\udc80'"):
        TraceRecorder(tmp_path / "trace", run_id="\udc80")

    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("run_id", ["web:8080", "team/web", "[1] 50%", "größe"])
def test_a_run_may_have_any_name(tmp_path: Path, finish: Finish, run_id: str) -> None:
    """A slash would name a missing folder, and Spark cannot read a colon."""
    with TraceRecorder(tmp_path, run_id=run_id) as recorder:
        finish(recorder, times=2)

    (file,) = trace_files(tmp_path)
    assert not set(file.name) & set(":/[]*?{}\\")
    assert [row["run_id"] for row in rows_of(tmp_path)] == [run_id] * 2


def test_runs_share_a_folder(tmp_path: Path, finish: Finish) -> None:
    """Two recorders write to one folder; run_id and operation_id identify their rows."""
    with TraceRecorder(tmp_path) as one, TraceRecorder(tmp_path) as other:
        finish(one, times=2)
        finish(other, times=2)

    rows = {(row["run_id"], row["operation_id"]) for row in rows_of(tmp_path)}
    assert rows == {(run.run_id, row) for run in (one, other) for row in (0, 1)}


def test_a_run_of_the_same_name_keeps_earlier_files(tmp_path: Path, finish: Finish) -> None:
    """A restarted program with a fixed run_id adds to its trace."""
    for times in (2, 3):
        with recorder_at_noon(tmp_path) as recorder:
            finish(recorder, times=times)

    assert sorted(pq.read_metadata(file).num_rows for file in trace_files(tmp_path)) == [2, 3]


RECORDING = """
import sys
from aiowheel import DelayedOperation
from aiowheel.trace import TraceRecorder

recorder = TraceRecorder(sys.argv[1], run_id="shared", batch_rows=50, queued_batches=1000)
operation = DelayedOperation(1.0)
operation.force_complete()
for _ in range(200):
    recorder.operation_finished("room", operation)
print("recorded", flush=True)
sys.stdin.readline()
recorder.close()
print(recorder.statistics().written, flush=True)
"""


@pytest.mark.one_build
def test_two_processes_with_one_run_id_lose_no_row(tmp_path: Path) -> None:
    """Both processes have a file open at the same time, and both files stay."""
    command = [sys.executable, "-c", RECORDING, str(tmp_path)]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "recorded\n"
    told = [child.communicate("close\n", timeout=60)[0] for child in children]

    assert told == ["200\n", "200\n"]
    rows = [(row["run_id"], row["operation_id"]) for row in rows_of(tmp_path)]
    assert sorted(rows) == sorted([("shared", number) for number in range(200)] * 2)


@pytest.mark.parametrize("taken", [".{}.tmp", "{}"])
def test_an_existing_file_name_is_an_error(
    tmp_path: Path,
    finish: Finish,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    taken: str,
) -> None:
    """The rows of the batch are counted as lost, and the next file has another name."""
    monkeypatch.setattr(_writer, "_file_name", lambda _run_id: "trace-same")
    other = tmp_path / taken.format("trace-same-000001.parquet")
    other.write_bytes(b"of another writer")

    with recorder_at_noon(tmp_path, batch_rows=10, file_rows=10) as recorder:
        finish(recorder, times=10)
        finish(recorder, times=10)

    assert other.read_bytes() == b"of another writer"
    assert (recorder.statistics().failed, recorder.statistics().written) == (10, 10)
    assert "10 rows lost: [Errno 17] File exists" in caplog.text
    assert (tmp_path / "trace-same-000002.parquet").exists()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_run_with_a_long_name_is_recorded(tmp_path: Path, finish: Finish) -> None:
    """The file name holds a part of the name, the column the whole name."""
    with TraceRecorder(tmp_path, run_id="größe" * 100) as recorder:
        finish(recorder)

    assert [row["run_id"] for row in rows_of(tmp_path)] == ["größe" * 100]


def test_a_dropped_recorder_closes_its_file(tmp_path: Path, finish: Finish) -> None:
    """Dropping a recorder without closing it keeps the flushed rows."""
    recorder = recorder_at_noon(tmp_path)
    finish(recorder)
    recorder.flush()
    del recorder
    gc.collect()

    assert len(rows_of(tmp_path)) == 1


def test_a_recorder_collected_on_the_writer_thread_closes_its_file(
    tmp_path: Path, finish: Finish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector may run on the writer's thread, and while the queue is full."""
    dropped, taken = threading.Event(), threading.Event()
    to_arrow = Batch.to_arrow

    def collect_first(self: Batch, run_id: str) -> pa.RecordBatch:
        taken.set()
        assert dropped.wait(30)
        gc.collect()
        return to_arrow(self, run_id)

    monkeypatch.setattr(Batch, "to_arrow", collect_first)
    recorder = recorder_at_noon(tmp_path, batch_rows=10, queued_batches=1)
    recorder.itself = recorder  # type: ignore[attr-defined]  # a cycle: only the collector frees it
    thread = recorder._writer._thread
    finish(recorder, times=10)
    assert taken.wait(30)
    finish(recorder, times=10)
    gc.disable()
    try:
        del recorder
        dropped.set()
        thread.join(30)
    finally:
        gc.enable()

    assert not thread.is_alive()
    assert read_trace(tmp_path)["operation_id"].to_pylist() == list(range(20))


def test_a_file_holds_the_schema(tmp_path: Path, finish: Finish) -> None:
    """Types, units and descriptions are in the file itself."""
    with recorder_at_noon(tmp_path) as recorder:
        finish(recorder)

    stored = pq.read_schema(trace_files(tmp_path)[0])
    assert stored.equals(TRACE_SCHEMA, check_metadata=True)
    assert stored.metadata[b"aiowheel.trace.version"] == b"1"
    assert stored.field("lateness").metadata[b"unit"] == b"ns"


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"batch_rows": 0}, "batch_rows must be from 1 to 2305843009213693951, got 0"),
        ({"queued_batches": 0}, "queued_batches must be from 1 to 2305843009213693951, got 0"),
        ({"file_rows": -5}, "file_rows must be from 1 to 2305843009213693951, got -5"),
        ({"file_bytes": 0}, "file_bytes must be from 1 to 2305843009213693951, got 0"),
        ({"file_seconds": 0.0}, "file_seconds must be more than 0, got 0.0"),
        ({"file_seconds": math.nan}, "file_seconds must be more than 0, got nan"),
    ],
)
def test_a_limit_below_its_minimum_is_refused(
    tmp_path: Path, limits: dict[str, Any], text: str
) -> None:
    """The error names the limit, its value and its range, and no folder is created."""
    with pytest.raises(ValueError, match=text):
        TraceRecorder(tmp_path / "new", **limits)

    assert not (tmp_path / "new").exists()
