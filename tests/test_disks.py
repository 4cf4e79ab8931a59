"""Every writer on a full disk and on a read-only disk, with real file systems.

A refused write raises an error of the package that names the reason and leaves earlier results
unchanged. Writes succeed as soon as the disk is writable again.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from aiowheel import DelayedOperation, Purgatory
from aiowheel._outputs import whole_file, whole_folder
from aiowheel.cli import run
from aiowheel.durable import DurableTimers, SQLiteStore, StoreError
from aiowheel.errors import AiowheelError
from aiowheel.readers import Reject, write_rejects
from aiowheel.shared import SharedCounters, SqliteCounters, StoreUnavailableError
from aiowheel.testing import ManualTimer
from aiowheel.trace import TraceRecorder

pytestmark = [pytest.mark.linux, pytest.mark.one_build, pytest.mark.realtime]

FAR = datetime(2100, 1, 1, tzinfo=UTC)
REASON = "No space left|disk is full|no permission to write|Read-only|readonly|unable to open"
Writer = Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system of one megabyte."""

    folder: Path

    def fill(self) -> None:
        """Fill the file system to the last byte."""
        with (
            contextlib.suppress(OSError),
            (self.folder / "ballast").open("wb", buffering=0) as ballast,
        ):
            while True:
                ballast.write(bytes(4096))

    def forbid(self) -> None:
        """Make the file system read-only; no file may be open for writing."""
        subprocess.run(["mount", "-o", "remount,ro", self.folder], check=True)

    def restore(self) -> None:
        """Make the file system writable again, with free space."""
        subprocess.run(["mount", "-o", "remount,rw", self.folder], check=True)
        (self.folder / "ballast").unlink(missing_ok=True)

    def files(self) -> dict[str, bytes]:
        """Return the content of each file except SQLite's own files and the ballast."""
        return {
            str(path): path.read_bytes()
            for path in self.folder.rglob("*")
            if path.is_file() and path.name != "ballast" and ".db" not in path.name
        }


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Mount a small file system."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "aiowheel-test", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no program that mounts file systems")
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted: {mounted.stderr.strip()}")
    yield Disk(folder)
    subprocess.run(["umount", "--lazy", folder], check=True)


def write_file(folder: Path) -> None:
    """Write one result file, as most commands do."""
    with whole_file(folder / "out.csv") as file:
        file.write("x" * 10_000)


def write_folder(folder: Path) -> None:
    """Write several result files, as reports do."""
    with whole_folder(folder / "out") as hidden:
        (hidden / "table").write_text("x" * 10_000)


def write_rejected_rows(folder: Path) -> None:
    """Write a rejected row to its file."""
    with write_rejects(folder / "rejects.csv") as put:
        put(Reject("in.csv", 2, "why", "x" * 10_000, used=False))


def write_idle_events(folder: Path) -> None:
    """Run the command; it prints one line if it fails."""
    source = folder.parent / "in.csv"
    source.write_text("key,t\n" + "".join(f"key {number},{number}\n" for number in range(1_000)))
    columns = ["--key", "key", "--time", "t", "--timeout", "30"]
    with contextlib.redirect_stderr(io.StringIO()) as written:
        code = run(["idle", str(source), *columns, "--out", str(folder / "idle.csv")])
    if code:
        (line,) = written.getvalue().splitlines()
        raise AiowheelError(line)


def write_durable_timer(folder: Path) -> None:
    """Schedule a timer in a new database file."""

    async def main() -> None:
        async with DurableTimers(SQLiteStore(folder / "timers.db")) as timers:
            await timers.schedule("name", "handler", due=FAR)

    asyncio.run(main())


def write_shared_counter(folder: Path) -> None:
    """Advance a counter in a new database file."""

    async def main() -> None:
        store = SqliteCounters(folder / "counters.db")
        async with Purgatory("p") as purgatory, SharedCounters(purgatory, store) as shared:
            await shared.advance("key", 1)

    asyncio.run(main())


WRITERS = (
    write_file,
    write_folder,
    write_rejected_rows,
    write_idle_events,
    write_durable_timer,
    write_shared_counter,
)


@pytest.mark.parametrize("trouble", [Disk.fill, Disk.forbid])
@pytest.mark.parametrize("write", WRITERS)
def test_a_refusal_changes_nothing_and_passes(
    disk: Disk, write: Writer, trouble: Callable[[Disk], None]
) -> None:
    """The earlier result stays byte for byte, and no partial file stands beside it."""
    if write not in {write_durable_timer, write_shared_counter}:
        write(disk.folder)
    before = disk.files()
    trouble(disk)

    with pytest.raises(AiowheelError, match=REASON):
        write(disk.folder)

    assert disk.files() == before
    disk.restore()
    write(disk.folder)


async def test_open_stores_refuse_for_as_long_as_the_disk_is_full(disk: Disk) -> None:
    """Confirmed writes stay readable, and new writes succeed after the disk has space again."""
    counters = SqliteCounters(disk.folder / "counters.db")
    async with (
        DurableTimers(SQLiteStore(disk.folder / "timers.db")) as timers,
        Purgatory("p") as purgatory,
        SharedCounters(purgatory, counters, patience=0.1) as shared,
    ):
        await timers.schedule("before", "handler", due=FAR)
        await shared.advance("before", 1)
        disk.fill()
        with pytest.raises(StoreError, match=REASON):
            await timers.schedule("refused", "handler", due=FAR, payload=bytes(20_000))
        with pytest.raises(StoreUnavailableError, match=REASON):
            await counters.raise_to({f"{number:1000}": 1 for number in range(20)})
        disk.restore()
        await timers.schedule("after", "handler", due=FAR)
        await shared.advance("after", 1)

        assert {name for name in ("before", "refused", "after") if await timers.get(name)} == {
            "before",
            "after",
        }
        assert [await shared.value(key) for key in ("before", "after")] == [1, 1]


class Fetch(DelayedOperation[None]):
    """An operation that never completes."""

    def try_complete(self) -> bool:
        """Return False."""
        return False


@pytest.mark.parametrize("trouble", [Disk.fill, Disk.forbid])
def test_a_recorder_counts_the_rows_that_a_disk_refused(
    disk: Disk, trouble: Callable[[Disk], None]
) -> None:
    """The recorded program continues, and the recorder writes again after the disk is mended."""
    timer = ManualTimer()
    trouble(disk)
    with TraceRecorder(disk.folder, batch_rows=10, file_rows=10, clock=timer.time) as recorder:
        purgatory = Purgatory("p", timer=timer, instruments=[recorder])
        expire_ten(purgatory, timer)
        while recorder.statistics().failed < 10:
            time.sleep(0.01)
        disk.restore()
        expire_ten(purgatory, timer)

    statistics = recorder.statistics()
    assert (statistics.failed, statistics.written, statistics.dropped) == (10, 10, 0)
    assert len(disk.files()) == 1


def expire_ten(purgatory: Purgatory, timer: ManualTimer) -> None:
    """Let ten operations expire."""
    for _ in range(10):
        purgatory.try_complete_else_watch(Fetch(1.0), ("key",))
    timer.advance(1)
