"""Reading and writing of traces in one process: files of operations and events. Rank 5: no Spark.

Applies the same checks as `frames` does with Spark on Parquet, in the same order; text files pass
the same checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from aiowheel.errors import BadInputError
from aiowheel.jobs.operations.rows import Row, json_text, rows_of
from aiowheel.jobs.schemas import (
    ALL,
    ANY,
    EVENTS,
    OPERATIONS,
    OUTCOMES,
    REJECTS,
    Flaw,
)
from aiowheel.readers import LATEST_TIME, Format, Inputs
from aiowheel.rules import NEVER, NO_VALUE, Ending, Event, Operation

_Parsed = TypeVar("_Parsed", Operation, Event)
_FORMATS = (Format.PARQUET, Format.NDJSON, Format.CSV)


#: Source, reason and text of each rejected row.
Rejects = list[tuple[str, str, str]]


def format_of_trace(path: Path, form: Format | None) -> Format:
    """Return the format of the files at *path*: *form*, or the format that the suffixes imply.

    Raises:
        BadInputError: No file exists, or the names do not imply one format that a trace can have.
    """
    found = form or Inputs([str(path)]).format
    if found is None:
        raise BadInputError(f"{path}: its file names imply no single format: give --format")
    if found not in _FORMATS:
        known = ", ".join(_FORMATS)
        raise BadInputError(f"{path}: a trace is {known}, not {found}")
    return found


def read_operations(path: Path, form: Format, rejects: Rejects) -> Iterator[Operation]:
    """Yield the operations in the files at *path*; bad rows are appended to *rejects*.

    Raises:
        BadInputError: A file cannot be read, or lacks columns of the table.
    """
    return _read(path, form, OPERATIONS, parse_operation, rejects)


def read_events(path: Path, form: Format, rejects: Rejects) -> Iterator[Event]:
    """Yield the events in the files at *path*; see `read_operations`."""
    return _read(path, form, EVENTS, parse_event, rejects)


def _read(
    path: Path,
    form: Format,
    schema: pa.Schema,
    parse: Callable[[Row], _Parsed | Flaw],
    rejects: Rejects,
) -> Iterator[_Parsed]:
    for source, row, raw in rows_of(path, form, schema):
        parsed = row if isinstance(row, Flaw) else parse(row)
        if isinstance(parsed, Flaw):
            text = raw if isinstance(row, Flaw) else raw or json_text(row)
            rejects.append((source, parsed.value, text))
        else:
            yield parsed


def parse_operation(row: Row) -> Operation | Flaw:
    """Check a row of the table of operations."""
    keys, thresholds = row["keys"], row["thresholds"]
    created, deadline = row["created"], row["deadline"]
    mode = ANY if row["mode"] is None else row["mode"]
    if not row["id"]:
        return Flaw.ID
    if not keys or not all(keys):
        return Flaw.KEYS
    if len(set(keys)) != len(keys):
        return Flaw.REPEATED
    if thresholds and len(thresholds) != len(keys):
        return Flaw.THRESHOLDS
    if mode not in {ANY, ALL}:
        return Flaw.MODE
    if not _is_time(created):
        return Flaw.CREATED
    if deadline is not None and not _is_time(deadline):
        return Flaw.DEADLINE
    least = thresholds or [None] * len(keys)
    return Operation(
        row["id"],
        tuple(keys),
        tuple(NO_VALUE if value is None else value for value in least),
        len(keys) if mode == ALL else 1,
        created,
        NEVER if deadline is None else deadline,
    )


def parse_event(row: Row) -> Event | Flaw:
    """Check a row of the table of events."""
    if not row["key"]:
        return Flaw.KEY
    if not _is_time(row["time"]):
        return Flaw.TIME
    return Event(row["key"], row["time"], NO_VALUE if row["value"] is None else row["value"])


def _is_time(value: int | None) -> bool:
    return value is not None and 0 <= value <= LATEST_TIME


def refuse_doubled(path: str | Path, count: int, doubled: str) -> NoReturn:
    """Refuse operations with the same id, because the outcomes are named by it."""
    raise BadInputError(f"{path}: id must be unique, but {count:,} operations have {doubled!r}")


def refuse_without_good_rows(path: str | Path, rejected: int, reason: str) -> NoReturn:
    """Raise the error for a table whose rows are all bad. A table without rows is legal.

    Args:
        path: The path of the table.
        rejected: The number of its rows, at least one.
        reason: The reason of the last one.

    Raises:
        BadInputError: Always.
    """
    raise BadInputError(f"{path}: no good row ({rejected:,} rejected, the last: {reason})")


def write_operations(file: Path, operations: Iterable[Operation]) -> None:
    """Write operations as a Parquet file."""
    rows = [
        {
            "id": row.id,
            "keys": row.keys,
            "thresholds": [None if least == NO_VALUE else least for least in row.thresholds],
            "mode": ANY if row.wanted == 1 else ALL,
            "created": row.created,
            "deadline": None if row.deadline == NEVER else row.deadline,
        }
        for row in operations
    ]
    _write(file, OPERATIONS, rows)


def write_events(file: Path, events: Iterable[Event]) -> None:
    """Write events as a Parquet file."""
    rows = [
        {"key": row.key, "time": row.time, "value": None if row.value == NO_VALUE else row.value}
        for row in events
    ]
    _write(file, EVENTS, rows)


def write_outcomes(file: Path, endings: Iterable[Ending]) -> None:
    """Write outcomes as a Parquet file."""
    _write(file, OUTCOMES, [ending._asdict() for ending in endings])


def write_rejects(file: Path, rejects: Rejects) -> None:
    """Write rejects as a Parquet file."""
    _write(file, REJECTS, [dict(zip(REJECTS.names, row, strict=True)) for row in rejects])


def _write(file: Path, schema: pa.Schema, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows, schema), file, compression="zstd")
