"""The end of a stream: a row so far in the future that everything before it is settled. Rank 5.

A stream waits for rows that may still come, and cannot know that none will. The row is one file in
each folder; whatever comes after it is late.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from aiowheel.errors import BadInputError
from aiowheel.pipeline.schemas import EVENTS, OPERATIONS, flush_time
from aiowheel.readers import Format, Unit

_NAME: Final = "zz-flush"  # behind the usual names, for who reads a folder by name


def flush(operations: Path, events: Path, form: Format, unit: Unit) -> list[Path]:
    """Have every stream over the two folders end once what lies there is worked off.

    Args:
        operations: The folder of operations.
        events: The folder of events.
        form: Of the files in both.
        unit: Of their times.

    Returns:
        The files written.

    Raises:
        BadInputError: A folder is missing.
        OSError: A folder is closed to us.
    """
    for folder in (operations, events):
        if not folder.is_dir():
            raise BadInputError(f"{folder}: no such folder")
    end = flush_time(unit)
    return [
        _put(operations, form, OPERATIONS, {"id": "", "keys": [], "created": end}),
        _put(events, form, EVENTS, {"key": "", "time": end}),
    ]


def _put(folder: Path, form: Format, schema: pa.Schema, row: dict[str, Any]) -> Path:
    file = folder / f"{_NAME}.{form}"
    hidden = folder / f".{file.name}.tmp"
    try:
        if form is Format.PARQUET:
            pq.write_table(pa.Table.from_pylist([row], schema), hidden)
        elif form is Format.NDJSON:
            hidden.write_text(f"{json.dumps(row)}\n", encoding="utf-8")
        else:
            fields = [str(row.get(name) or "") for name in schema.names]
            hidden.write_text(f"{','.join(schema.names)}\n{','.join(fields)}\n", encoding="utf-8")
        _make_newest(hidden, folder)
        hidden.replace(file)
    finally:
        hidden.unlink(missing_ok=True)
    return file


def _make_newest(file: Path, folder: Path) -> None:
    """Have Spark, which takes files by the millisecond of their time, take this one last."""
    newest_ns = max(path.stat().st_mtime_ns for path in (file, *folder.iterdir()))
    os.utime(file, ns=(newest_ns + 1_000_000, newest_ns + 1_000_000))
