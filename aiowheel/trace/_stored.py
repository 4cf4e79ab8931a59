"""The schema and version stored in a trace file. Rank 4."""

from __future__ import annotations

import os
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from aiowheel.errors import BadInputError
from aiowheel.trace.schema import RECORDER_KEY, SCHEMA_VERSION, VERSION_KEY

#: The trace versions that this version can read. A file without a version has version 1.
UNDERSTOOD: Final = (SCHEMA_VERSION,)
_OLDEST: Final = "1"


def stored_schema(file: str | os.PathLike[str]) -> pa.Schema:
    """Read the schema of a trace file.

    Raises:
        BadInputError: The file cannot be read, is no Parquet file, or has another trace version.
    """
    name = os.fspath(file)
    try:
        schema = pq.read_schema(arrow_path(name))
    except (OSError, UnicodeEncodeError, pa.ArrowException) as error:
        raise unreadable(name, error) from error
    found = (schema.metadata or {}).get(VERSION_KEY.encode(), _OLDEST.encode())
    if found not in {str(version).encode() for version in UNDERSTOOD}:
        legal = " or ".join(map(str, UNDERSTOOD))
        shown = found.decode() if found.isdigit() else repr(found)
        raise BadInputError(f"{name}: trace version must be {legal}, got {shown}")
    return schema


def stored_recorder(file: str | os.PathLike[str]) -> str | None:
    """Return the build, Python and system that recorded a trace file; None if not stored.

    Raises:
        BadInputError: The file cannot be read, or is no Parquet file.
    """
    name = os.fspath(file)
    try:
        found = (pq.read_metadata(arrow_path(name)).metadata or {}).get(RECORDER_KEY.encode())
    except (OSError, pa.ArrowException) as error:
        raise unreadable(name, error) from error
    return None if found is None else found.decode(errors="replace")


def arrow_path(file: str) -> str:
    """Return the absolute path: in a relative one, Arrow takes text before a colon for a scheme."""
    return os.path.abspath(file)  # noqa: PTH100 - unlike a Path it keeps every str


def unreadable(file: str, error: Exception) -> BadInputError:
    """Return the error for a file that Arrow or the system refuses to read."""
    if isinstance(error, UnicodeEncodeError):  # Arrow opens files by paths in UTF-8
        return BadInputError(f"{file}: the path must be UTF-8")
    if isinstance(error, PermissionError):
        return BadInputError(f"{file}: no permission to read it")
    if isinstance(error, OSError) and error.strerror:
        return BadInputError(f"{file}: {error.strerror}")
    # Arrow reports damaged data as an OSError without errno or as an error of its own type.
    return BadInputError(f"{file}: not a Parquet file, or damaged: {error}")
