"""Reading a recorded trace into memory, without Spark. Rank 4.

Source: the closed files of a recorder; open files, and files that a crash left open, begin with a
dot and are skipped.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds

from aiowheel._arguments import checked_choice
from aiowheel.trace._stored import arrow_path, stored_schema, unreadable
from aiowheel.trace.schema import TRACE_SCHEMA

if TYPE_CHECKING:
    import pandas as pd


def trace_files(folder: str | os.PathLike[str]) -> list[Path]:
    """List the closed files of a trace, in the order of their names.

    Raises:
        FileNotFoundError: The folder does not exist or holds no trace file.
        PermissionError: The folder cannot be read.
    """
    files = sorted(Path(folder).glob("trace-*.parquet"))
    if not files:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.scandir(folder).close()  # raises the error that `glob` hides
        raise FileNotFoundError(f"no trace file (trace-*.parquet) in {os.fspath(folder)!r}")
    return files


def read_trace(folder: str | os.PathLike[str], *, columns: Sequence[str] | None = None) -> pa.Table:
    """Read every closed file of a trace as one Arrow table.

    Args:
        folder: A folder to which a `TraceRecorder` wrote.
        columns: Names of the columns to read; None reads all of `TRACE_SCHEMA`.

    Raises:
        ValueError: *columns* has another name.
        FileNotFoundError: The folder does not exist or holds no trace file.
        BadInputError: A file is damaged, or has a trace version that this version cannot read.
    """
    names = None
    if columns is not None:
        names = [checked_choice("columns", name, TRACE_SCHEMA.names) for name in columns]
    table = pa.concat_tables([_read_file(str(file), names) for file in trace_files(folder)])
    # Each row group has its own dictionaries, but Arrow can only group by unified ones.
    return table.unify_dictionaries()


def read_trace_pandas(
    folder: str | os.PathLike[str], *, columns: Sequence[str] | None = None
) -> pd.DataFrame:
    """Read a trace as a pandas DataFrame; integer columns with missing values stay integers.

    Args:
        folder: A folder to which a `TraceRecorder` wrote.
        columns: Names of the columns to read; None reads all.

    Raises:
        ValueError: *columns* has another name.
        FileNotFoundError: The folder does not exist or holds no trace file.
        BadInputError: A file is damaged, or has a trace version that this version cannot read.
    """
    import pandas as pd

    # By default pandas converts a nullable integer column to float, which cannot hold today's times
    # in nanoseconds.
    whole_numbers = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype()}
    frame: pd.DataFrame = read_trace(folder, columns=columns).to_pandas(
        types_mapper=whole_numbers.get
    )
    return frame


def _read_file(file: str, columns: list[str] | None) -> pa.Table:
    stored_schema(file)
    try:
        data = ds.dataset(arrow_path(file), schema=TRACE_SCHEMA, format="parquet")
        return data.to_table(columns=columns)
    except (OSError, pa.ArrowException) as error:  # one file per call: Arrow's error names no file
        raise unreadable(file, error) from error
