"""The thread that writes batches to files. Rank 4.

Source: all slow work (texts, Arrow, compression, fsync) runs on this thread, behind a bounded
queue, so that a slow disk delays neither the event loop nor fills the memory.
"""

from __future__ import annotations

import logging
import os
import queue
import secrets
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pyarrow as pa

from aiowheel.trace._batch import Batch
from aiowheel.trace._file import TraceFile

# A file name has at most 255 bytes; the column `run_id` holds the full name of the run.
_LONGEST_PART: Final = 80

_logger = logging.getLogger("aiowheel.trace")


@dataclass(frozen=True)
class WriterLimits:
    """The limits of the queue and of one file.

    Attributes:
        queued_batches: Number of batches that may wait in the queue.
        file_rows: Rows after which a file is closed.
        file_bytes: Bytes after which a file is closed.
        file_seconds: Age after which a file is closed.
    """

    queued_batches: int
    file_rows: int
    file_bytes: int
    file_seconds: float


class TraceWriter:
    """A writer of batches to rotating files, on its own thread.

    Attributes:
        written: Number of rows in closed files.
        failed: Number of rows lost to disk errors or to a file name that exists already.
        files: The closed files, oldest first.
    """

    def __init__(self, folder: Path, run_id: str, limits: WriterLimits) -> None:
        self.written = 0
        self.failed = 0
        self.files: list[Path] = []
        self._folder = folder
        self._run_id = run_id
        self._name = _file_name(run_id)
        self._limits = limits
        self._file: TraceFile | None = None
        self._files_begun = 0
        self._abandoned = False
        self._queue: queue.Queue[Batch | None] = queue.Queue(limits.queued_batches)  # None: stop
        # A daemon thread, so that a recorder that was never closed does not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="aiowheel-trace", daemon=True)
        self._thread.start()

    def offer(self, batch: Batch) -> bool:
        """Queue *batch* unless the queue is full; return whether it was queued. Never blocks."""
        try:
            self._queue.put_nowait(batch)
        except queue.Full:
            return False
        return True

    def stop(self, last: Batch | None = None) -> None:
        """Write the queue and *last*, close the file, end the thread. Blocks; idempotent."""
        if threading.current_thread() is self._thread:
            # The garbage collector finalizes the recorder on the writer's thread: joining would
            # deadlock.
            self._abandoned = True
            return
        if not self._thread.is_alive():
            return
        if last is not None and last.count:
            self._queue.put(last)
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while not (self._abandoned and self._queue.empty()):
            try:
                batch = self._queue.get(timeout=self._seconds_left())
            except queue.Empty:
                self._close_file()
                continue
            if batch is None:
                break
            self._write(batch)
            if self._is_full():
                self._close_file()
        self._close_file()

    def _seconds_left(self) -> float | None:
        if self._file is None:
            return None
        age = time.monotonic() - self._file.opened
        return max(0.0, self._limits.file_seconds - age)

    def _is_full(self) -> bool:
        file, limits = self._file, self._limits
        return file is not None and (
            file.rows >= limits.file_rows
            or file.bytes >= limits.file_bytes
            or self._seconds_left() == 0.0
        )

    def _write(self, batch: Batch) -> None:
        try:
            if self._file is None:
                self._file = TraceFile(self._next_path())
            self._file.write(batch.to_arrow(self._run_id))
        except Exception as error:  # converting a user's keys may raise anything
            self._fail_file(batch.count, error)

    def _next_path(self) -> Path:
        self._files_begun += 1
        return self._folder / f"{self._name}-{self._files_begun:06d}.parquet"

    def _close_file(self) -> None:
        if self._file is None:
            return
        try:
            self._file.close()
        except (OSError, pa.ArrowException) as error:
            self._fail_file(0, error)
            return
        self.written += self._file.rows
        self.files.append(self._file.path)
        self._file = None

    def _fail_file(self, more_rows: int, error: Exception) -> None:
        # The next batch opens a new file, so that writing resumes when a full disk has space again.
        rows = more_rows
        if self._file is not None:
            rows += self._file.rows
            self._file.abandon()
            self._file = None
        self.failed += rows
        _logger.error("trace of run %s: %d rows lost: %s", self._run_id, rows, error)


def _file_name(run_id: str) -> str:
    """Return the unique prefix of the file names of one writer."""
    # A slash would name a folder that does not exist, and Spark cannot read names with a colon.
    run, host = (quote(text, safe=" ")[:_LONGEST_PART] for text in (run_id, socket.gethostname()))
    return f"trace-{run}-{host}-{os.getpid()}-{secrets.token_hex(8)}"
