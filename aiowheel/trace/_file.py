"""One Parquet file of a trace, hidden until it is complete. Rank 4.

Source: readers (Spark, pyarrow) skip names that begin with a dot, and a rename within one folder is
atomic. So a file is either absent or complete, even after a crash. No file replaces another one:
the hidden file is opened exclusively and keeps its name until the rename.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from aiowheel._build import build_info
from aiowheel._outputs import sync_folder
from aiowheel.trace._batch import BATCH_SCHEMA
from aiowheel.trace.schema import RECORDER_KEY, SCHEMA_VERSION, TRACE_SCHEMA, VERSION_KEY

# Times grow row by row: their differences take a fifth of the bytes and are cheaper to write.
_WHOLE_NUMBERS = [field.name for field in TRACE_SCHEMA if pa.types.is_integer(field.type)]
_TIMES = ["created", "deadline", "finished"]
_TEXTS = ["run_id", "purgatory", "kind", "keys.list.element", "outcome", "completed_by"]


# Metadata for readers: Arrow's schema says that keys are texts, although batches hold numbers; the
# version is also stored for readers that do not read Arrow's schema.
_METADATA = {
    "ARROW:schema": base64.b64encode(TRACE_SCHEMA.serialize()),
    VERSION_KEY: str(SCHEMA_VERSION),
}


class TraceFile:
    """A Parquet file under construction, with one row group per batch.

    Attributes:
        path: The final path, which exists once the file is closed.
        rows: Number of rows written so far.
        opened: `time.monotonic()` when the file was opened.
    """

    def __init__(self, path: Path) -> None:
        """Open the hidden file.

        Raises:
            FileExistsError: Another writer has an open or closed file of this name.
        """
        self.path = path
        self.rows = 0
        self.opened = time.monotonic()
        self._hidden = path.with_name(f".{path.name}.tmp")
        self._sink = self._hidden.open("xb")
        # The check must follow the creation of the hidden file: another writer frees the hidden
        # name when it closes its file.
        if path.exists():
            self._sink.close()
            self._hidden.unlink()
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        self._writer = pq.ParquetWriter(
            self._sink,
            BATCH_SCHEMA,
            compression="snappy",  # zstd saves a tenth of the bytes and takes a third more time
            use_dictionary=_TEXTS,
            write_statistics=_TIMES,  # readers skip row groups by these columns
            column_encoding=dict.fromkeys(_WHOLE_NUMBERS, "DELTA_BINARY_PACKED"),
        )
        self._writer.add_key_value_metadata(_METADATA | {RECORDER_KEY: str(build_info())})

    @property
    def bytes(self) -> int:
        """Size of the row groups on disk so far, in bytes."""
        return self._sink.tell()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append *batch* as one row group."""
        self._writer.write_batch(batch, row_group_size=max(1, batch.num_rows))
        self.rows += batch.num_rows

    def close(self) -> None:
        """Write the footer, wait until the data is on disk, and make the file visible."""
        self._writer.close()
        self._sink.flush()
        os.fsync(self._sink.fileno())
        self._sink.close()
        self._hidden.rename(self.path)
        sync_folder(self.path.parent)

    def abandon(self) -> None:
        """Remove the incomplete file after an error."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._writer.is_open = False  # else its destructor closes again and prints a traceback
        with contextlib.suppress(OSError):  # buffered data may fail to reach the disk
            self._sink.close()
        with contextlib.suppress(OSError):  # the file system may have become read-only
            self._hidden.unlink(missing_ok=True)
