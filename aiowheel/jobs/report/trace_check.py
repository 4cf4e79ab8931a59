"""Whether a folder holds a trace, told before anything slow begins. Rank 5; no Spark."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq

from aiowheel.errors import BadInputError
from aiowheel.trace import TRACE_COLUMNS, trace_files


def check_trace(trace_folder: str | os.PathLike[str]) -> list[str]:
    """List the files of a trace, each with all columns of the schema.

    Raises:
        BadInputError: The folder holds no trace, or a file of it is no trace.
    """
    try:
        files = [str(file.resolve()) for file in trace_files(trace_folder)]
    except FileNotFoundError as error:
        raise BadInputError(str(error)) from None
    for file in files:
        # Spark would say the same in sixty lines of Java.
        try:
            names = pq.read_schema(file).names
        except pa.ArrowInvalid as error:
            raise BadInputError(f"{file}: not a Parquet file: {error}") from None
        except PermissionError:
            raise BadInputError(f"{file}: no permission to read it") from None
        missing = [column.name for column in TRACE_COLUMNS if column.name not in names]
        if missing:
            raise BadInputError(f"{file}: not a trace: no column {missing[0]!r}")
    return files
