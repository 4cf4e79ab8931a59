"""Where a result may be written: looked at before hours of work go into it. Rank 5."""

import os
from pathlib import Path

from aiowheel.errors import BadInputError


def check_destination(path: Path, option: str = "--out") -> None:
    """Refuse a path that cannot become a file.

    Raises:
        BadInputError: The folder is missing or closed to us, or the path is something else than a
            file: results are renamed into place, which would put a file where a device was.
    """
    try:
        if path.is_dir():
            raise BadInputError(f"{path}: is a folder, {option} wants a file")
        if not path.parent.is_dir():
            raise BadInputError(f"{path.parent}: no such folder for {option}")
        if path.exists() and not path.is_file():
            raise BadInputError(f"{path}: is a device or a pipe, {option} wants a file")
        if not os.access(path.parent, os.W_OK):
            raise BadInputError(f"{path.parent}: no permission to write there")
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from error


def check_folder(path: Path, option: str = "--out") -> None:
    """Refuse a path that is no folder of ours to write to and cannot become one.

    Raises:
        BadInputError: It is a file, or closed to us, or lies in such a place.
    """
    try:
        there = next(place for place in (path, *path.absolute().parents) if place.exists())
        if not there.is_dir():
            raise BadInputError(f"{there}: is a file, {option} wants a folder")
        if not os.access(there, os.W_OK | os.X_OK):
            raise BadInputError(f"{there}: no permission to write there")
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from error
