"""The instrument that records every finished operation as Parquet. Rank 4.

Source: the event loop only stores integers and passes full batches to the writer's thread. If the
disk is too slow, the newest batch is dropped and counted, so that recording never blocks the loop.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from aiowheel._arguments import MOST, checked_int, checked_str, safe_repr
from aiowheel._callbacks import AWAIT_BEFORE, plain_callback
from aiowheel._printable import is_unicode
from aiowheel.abc import Instrument
from aiowheel.trace._batch import Batch
from aiowheel.trace._row_buffer import ROWS_PER_PART
from aiowheel.trace._rows import RowCollector
from aiowheel.trace._writer import TraceWriter, WriterLimits


@dataclass(frozen=True)
class RecorderStatistics:
    """What happened to the recorded operations; all values are counts.

    Attributes:
        recorded: Finished operations that the recorder received.
        written: Of these, rows in closed files.
        dropped: Rows dropped because the queue was full or the recorder closed.
        failed: Rows lost to disk errors or to a file name that exists already.
        files: Closed files.
    """

    recorded: int
    written: int
    dropped: int
    failed: int
    files: int


class TraceRecorder(RowCollector, Instrument):
    """An instrument that writes one row per finished operation; pass it to a purgatory.

    `RecordedTimer` records the deadlines of a timer with it.

    ```python
    async with TraceRecorder("trace") as recorder:
        async with Purgatory("fetch", timer=timer, instruments=[recorder]) as purgatory:
            ...
    ```

    Memory is bounded by `batch_rows * (queued_batches + 2)` rows of about 60 bytes, plus the
    distinct keys of each batch; while the disk keeps up, it is two batches. A crash loses at most
    the rows of the open file (at most `file_seconds` of them) and never a closed file. A recorder
    serves one event loop; several loops, processes and hosts may share one folder and one
    `run_id`, each with its own recorder. No file is ever overwritten.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        run_id: str | None = None,
        batch_rows: int = 65_536,
        queued_batches: int = 8,
        flush_seconds: float = 1.0,
        file_rows: int = 1_000_000,
        file_bytes: int = 64 * 2**20,
        file_seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """Create the folder and start the writer's thread.

        Args:
            folder: The folder of the files; created if missing.
            run_id: The name of this recorder in the trace; None generates one. File names begin
                with it, in URL encoding, and also contain the host, the process and a random part.
            batch_rows: Rows per row group, at least 1.
            queued_batches: Number of batches that may wait for the disk, at least 1.
            flush_seconds: Age at which a batch is written even if it is not full. Needs a running
                event loop; without one, only `flush` and closing write a partial batch.
            file_rows: Rows after which a file is closed, at least 1.
            file_bytes: Bytes after which a file is closed, at least 1.
            file_seconds: Age after which a file is closed, more than 0.
            clock: The clock of the timer, in seconds: `time.monotonic`, which event loops use;
                otherwise the method `time` of the timer, which is a `ManualTimer`, or an open
                `Timer` with `clock="boottime"`.
            wall_clock: Unix time in nanoseconds. Read once, together with `clock`, so that setting
                the wall clock while recording changes no times.

        Raises:
            ValueError: A limit is below its minimum, or *run_id* holds a lone surrogate.
            OSError: The folder cannot be created.
        """
        if not isinstance(folder, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
            raise TypeError(f"folder must be a path, got {safe_repr(folder)}")
        if run_id is not None:
            _check_run_id(run_id)
        _check_counts(
            batch_rows=batch_rows,
            queued_batches=queued_batches,
            file_rows=file_rows,
            file_bytes=file_bytes,
        )
        flush_seconds = _checked_seconds("flush_seconds", flush_seconds)
        file_seconds = _checked_seconds("file_seconds", file_seconds)
        plain_callback("clock", clock, AWAIT_BEFORE)
        plain_callback("wall_clock", wall_clock, AWAIT_BEFORE)
        limits = WriterLimits(queued_batches, file_rows, file_bytes, file_seconds)
        self.folder: Path = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.run_id: str = run_id if run_id is not None else _new_run_id()
        self._batch_rows = batch_rows
        self._flush_seconds = flush_seconds
        self._flush_handle: asyncio.TimerHandle | None = None
        self._epoch_offset_ns = wall_clock() - round(clock() * 1e9)
        self._batch = Batch(0, self._epoch_offset_ns)
        super().__init__(self._batch.rows)
        self._handed_over = 0
        self._dropped = 0
        self._closed = False
        self._writer = TraceWriter(self.folder, self.run_id, limits)
        # Closes the open file of a recorder that is garbage collected or never closed before exit.
        self._finalizer = weakref.finalize(self, self._writer.stop)

    def flush(self) -> None:
        """Pass the rows so far to the writer's thread; does not wait for the disk."""
        batch = self._take_batch()
        if batch.count and not self._writer.offer(batch):
            self._dropped += batch.count

    def statistics(self) -> RecorderStatistics:
        """Return how many rows were recorded, written and lost so far."""
        return RecorderStatistics(
            recorded=self._handed_over + self._rows.count,
            written=self._writer.written,
            dropped=self._dropped,
            failed=self._writer.failed,
            files=len(self._writer.files),
        )

    def close(self) -> None:
        """Write all rows and close the file. Blocks until the data is on disk; idempotent."""
        self._closed = True
        self._writer.stop(self._take_batch())

    async def aclose(self) -> None:
        """Close like `close`, without blocking the event loop."""
        self._closed = True
        last = self._take_batch()
        await asyncio.to_thread(self._writer.stop, last)

    def _reach_limit(self) -> None:
        rows = self._rows
        if self._closed:
            self._handed_over += rows.count
            self._dropped += rows.count
            rows.clear()
        elif rows.count >= self._batch_rows:
            self.flush()
        elif rows.count == 1:
            self._arm_flush()
            self._limit = min(ROWS_PER_PART, self._batch_rows)
        else:
            self._batch.pack()
            self._limit = min(rows.count + ROWS_PER_PART, self._batch_rows)

    def _arm_flush(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._flush_handle = loop.call_later(self._flush_seconds, self.flush)

    def _take_batch(self) -> Batch:
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        batch = self._batch
        self._handed_over += batch.count
        self._batch = Batch(self._handed_over, self._epoch_offset_ns)
        self._rows = self._batch.rows
        self._limit = 1
        return batch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()


def _check_counts(**counts: object) -> None:
    for name, value in counts.items():
        checked_int(name, value, 1, MOST)


def _checked_seconds(name: str, seconds: object) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{name} must be a number of seconds, got {safe_repr(seconds)}")
    if not seconds > 0:
        raise ValueError(f"{name} must be more than 0, got {safe_repr(seconds)}")
    return min(seconds, threading.TIMEOUT_MAX)  # the writer's thread cannot wait for longer


def _check_run_id(run_id: object) -> None:
    if not is_unicode(checked_str("run_id", run_id)):
        raise ValueError(f"run_id must be text that is Unicode, got {safe_repr(run_id)}")


def _new_run_id() -> str:
    """Return a new run id: ids sort by start time and are unique among processes."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) + "-" + secrets.token_hex(4)
