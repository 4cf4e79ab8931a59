"""One Parquet file of a trace, invisible until it is whole. Rank 4.

Source: readers (Spark, pyarrow) skip names that begin with a dot; a rename within one folder is
atomic. So a file is either absent or complete, also after a crash. No file replaces another one:
the hidden file is opened exclusively and keeps its name until the rename.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from aiowheel._build import build_info

from ._batch import BATCH_SCHEMA
from .schema import RECORDER_KEY, SCHEMA_VERSION, TRACE_SCHEMA, VERSION_KEY

# Times that grow row by row: their differences are a fifth of the bytes, and cheaper to write.
_WHOLE_NUMBERS = [field.name for field in TRACE_SCHEMA if pa.types.is_integer(field.type)]
_TIMES = ["created", "deadline", "finished"]
_TEXTS = ["run_id", "purgatory", "kind", "keys.list.element", "outcome", "completed_by"]


# What the file tells readers of itself: that keys are texts, though batches have them as numbers,
# and the version, also to readers that know nothing of Arrow's schema.
_METADATA = {
    "ARROW:schema": base64.b64encode(TRACE_SCHEMA.serialize()),
    VERSION_KEY: str(SCHEMA_VERSION),
}


class TraceFile:
    """A file being written, one row group per batch.

    Attributes:
        path: Where it appears once closed.
        rows: Rows written so far.
        opened: `time.monotonic()` at its birth.
    """

    def __init__(self, path: Path) -> None:
        """Open the hidden file.

        Raises:
            FileExistsError: Another writer has a file of this name, open or closed.
        """
        self.path = path
        self.rows = 0
        self.opened = time.monotonic()
        self._hidden = path.with_name(f".{path.name}.tmp")
        self._sink = self._hidden.open("xb")
        # Looked for after the hidden name is taken: a writer that has closed its file released it.
        if path.exists():
            self._sink.close()
            self._hidden.unlink()
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        self._writer = pq.ParquetWriter(
            self._sink,
            BATCH_SCHEMA,
            compression="snappy",  # zstd saves a tenth of the bytes for a third more time
            use_dictionary=_TEXTS,
            write_statistics=_TIMES,  # what a reader skips row groups by
            column_encoding=dict.fromkeys(_WHOLE_NUMBERS, "DELTA_BINARY_PACKED"),
        )
        self._writer.add_key_value_metadata(_METADATA | {RECORDER_KEY: str(build_info())})

    @property
    def bytes(self) -> int:
        """Bytes on disk so far, row groups only."""
        return self._sink.tell()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append *batch* as one row group."""
        self._writer.write_batch(batch, row_group_size=max(1, batch.num_rows))
        self.rows += batch.num_rows

    def close(self) -> None:
        """Write the footer, wait until the disk has it, and make the file visible."""
        self._writer.close()
        self._sink.flush()
        os.fsync(self._sink.fileno())
        self._sink.close()
        self._hidden.rename(self.path)
        _sync_folder(self.path.parent)

    def abandon(self) -> None:
        """Remove what has been written, after an error that made it worthless."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._writer.is_open = False  # else its destructor tries once more and prints a traceback
        with contextlib.suppress(OSError):  # the disk may refuse what is still buffered
            self._sink.close()
        with contextlib.suppress(OSError):  # nor what is removed, once it is mounted read-only
            self._hidden.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    # The new name is an entry of the folder, and reaches the disk only with it.
    if sys.platform == "win32":  # a folder cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
