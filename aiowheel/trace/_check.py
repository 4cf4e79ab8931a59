"""A quick check whether a folder holds a trace, before a job starts. Rank 4."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from aiowheel.errors import BadInputError
from aiowheel.trace._stored import arrow_path, stored_schema, unreadable
from aiowheel.trace.reader import trace_files
from aiowheel.trace.schema import TRACE_COLUMNS


def check_trace(trace_folder: str | os.PathLike[str]) -> list[str]:
    """List the files of a trace, after checking that each has all columns of the schema.

    Raises:
        BadInputError: The folder holds no trace or cannot be read, or a file in it is not a trace,
            or has a version that cannot be read.
    """
    try:
        files = [str(file.resolve()) for file in trace_files(trace_folder)]
    except FileNotFoundError as error:
        raise BadInputError(str(error)) from None
    except OSError as error:
        raise BadInputError(f"{error.filename}: {error.strerror}") from error
    for file in files:
        # Spark's own error takes sixty lines of Java.
        for flaw in _flaws(file):
            raise BadInputError(f"{file}: not a trace: {flaw}")
    return files


def _flaws(file: str) -> Iterator[str]:
    schema = stored_schema(file)
    for column in TRACE_COLUMNS:
        if column.name not in schema.names:
            yield f"no column {column.name!r}"
        elif _kind(found := schema.field(column.name).type) != (wanted := _kind(column.type)):
            yield f"column {column.name!r} must hold {wanted}, got {found}"
    for column in TRACE_COLUMNS:
        may_be_missing = column.nullable or pa.types.is_list(column.type)  # no list is no keys
        if not may_be_missing and (missing := _missing(file, column.name)):
            yield f"column {column.name!r} has {missing:,} missing values"


def _missing(file: str, name: str) -> int:
    """Count the missing values of a column; the column is read only if it has no statistics."""
    try:
        with pq.ParquetFile(arrow_path(file)) as opened:
            metadata = opened.metadata
            places = range(metadata.num_columns)
            place = next(at for at in places if metadata.schema.column(at).path == name)
            groups = map(metadata.row_group, range(metadata.num_row_groups))
            found = [group.column(place).statistics for group in groups]
            if all(each is not None and each.has_null_count for each in found):
                return sum(each.null_count for each in found)
            return int(opened.read([name]).column(name).null_count)
    except (OSError, pa.ArrowException) as error:
        raise unreadable(file, error) from error


def _kind(found: pa.DataType) -> str:
    """Return the kind of a column without its width, which another program may have changed."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_integer(found) and found != pa.uint64():  # to Spark, a uint64 is a decimal
        return "signed integers"
    if pa.types.is_string(found) or pa.types.is_large_string(found):
        return "texts"
    return "lists" if pa.types.is_list(found) or pa.types.is_large_list(found) else str(found)
