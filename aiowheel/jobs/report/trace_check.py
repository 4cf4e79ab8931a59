"""Whether a folder holds a trace, told before anything slow begins. Rank 5; no Spark."""

from __future__ import annotations

import os

from aiowheel.errors import BadInputError
from aiowheel.trace import TRACE_COLUMNS, trace_files
from aiowheel.trace._stored import stored_schema


def check_trace(trace_folder: str | os.PathLike[str]) -> list[str]:
    """List the files of a trace, each with all columns of the schema.

    Raises:
        BadInputError: The folder holds no trace, or a file of it is no trace, or one of a version
            that cannot be read.
    """
    try:
        files = [str(file.resolve()) for file in trace_files(trace_folder)]
    except FileNotFoundError as error:
        raise BadInputError(str(error)) from None
    for file in files:
        # Spark would say the same in sixty lines of Java.
        names = stored_schema(file).names
        missing = [column.name for column in TRACE_COLUMNS if column.name not in names]
        if missing:
            raise BadInputError(f"{file}: not a trace: no column {missing[0]!r}")
    return files
