"""Checking of the places for results before the work, and atomic writing of files. Rank 5."""

import contextlib
import io
import os
import sys
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import TextIO

from aiowheel._outputs import drop_standard_output, whole_file
from aiowheel.errors import AiowheelError, BadInputError
from aiowheel.jobs.spark.uris import is_inside

#: `-`: the result goes to standard output.
STANDARD_OUTPUT = Path("-")


def check_destination(path: Path, option: str = "--out", *, or_stdout: bool = False) -> None:
    """Refuse a path that cannot become a file.

    A symbolic link stands for the file that it points to.

    Args:
        path: The path as given.
        option: Name of the option, for the error.
        or_stdout: Whether `-` is legal.

    Raises:
        BadInputError: The folder is missing or not writable, or the path exists and is not a file.
            A device is refused because the result is renamed into place, which would replace it.
    """
    if path == STANDARD_OUTPUT:
        if not or_stdout:
            raise BadInputError(f"{option} must be a file, got -: it cannot go to standard output")
        if sys.__stdout__ is None:
            raise BadInputError(f"{option} must be a file, got -: standard output is closed")
        return
    try:
        if path.is_dir():
            raise BadInputError(f"{option} must be a file, got {path}: it is a folder")
        target = Path(os.path.realpath(path))
        if target.is_symlink():
            raise BadInputError(f"{option} must be a file, got {path}: it is a loop of links")
        if path.exists():
            _check_existing(path, option)
        if not target.parent.is_dir():
            raise BadInputError(f"{target.parent}: no such folder for {option}")
        if not os.access(target.parent, os.W_OK):
            raise BadInputError(f"{target.parent}: no permission to write there")
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from error


def _check_existing(path: Path, option: str) -> None:
    if not path.is_file():
        kind = "a device, a pipe or a socket"
        raise BadInputError(f"{option} must be a file, got {path}: it is {kind}")
    with contextlib.suppress(OSError):  # a process may have no standard output
        if os.path.samestat(path.stat(), os.fstat(1)):
            # For example /dev/stdout, redirected to a file: printed lines would go to the file that
            # the result replaces.
            raise BadInputError(f"{option} must be another file than standard output, got {path}")


def check_folder(path: Path, option: str = "--out") -> None:
    """Refuse a path that is not a writable folder and cannot become one.

    Raises:
        BadInputError: The path, or its nearest existing parent, is `-`, a file or a device, or is
            not writable.
    """
    if path == STANDARD_OUTPUT:
        raise BadInputError(f"{option} must be a folder, got -: several files are written")
    try:
        there = next(place for place in (path, *path.absolute().parents) if place.exists())
        if not there.is_dir():
            kind = "a file" if there.is_file() else "a device, a pipe or a socket"
            raise BadInputError(f"{option} must be a folder, got {path}: {there} is {kind}")
        if not os.access(there, os.W_OK | os.X_OK):
            raise BadInputError(f"{there}: no permission to write there")
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from error


def check_apart(
    inputs: Iterable[str], outputs: Mapping[str, str], *, are_replaced: bool = True
) -> None:
    """Refuse outputs in the places of the inputs or of each other, all given by URIs or paths.

    Folders are read recursively, so a run would read its own results or those of the previous run.

    Args:
        inputs: The tables that are read.
        outputs: The tables that are written, by option.
        are_replaced: Whether writing deletes what is inside an output.

    Raises:
        BadInputError: An output is an input, lies in one, or would delete an input or the output
            of an earlier option; or a URI is invalid.
    """
    before: list[str] = []
    for option, place in outputs.items():
        for read in inputs:
            if is_inside(place, read) or (are_replaced and is_inside(read, place)):
                raise BadInputError(
                    f"{option} must be outside the tables that are read, got {place}"
                )
        for written in before:
            if is_inside(written, place):
                raise BadInputError(f"{option} must be apart from the other outputs, got {place}")
        before.append(place)


@contextlib.contextmanager
def open_destination(path: Path) -> Generator[TextIO]:
    """Open a file that replaces *path* if the block succeeds, or standard output for `-`.

    The text is encoded as UTF-8, and line ends are not changed.

    Raises:
        AiowheelError: The file cannot be written, and *path* is unchanged; or the reader of
            standard output has closed it.
    """
    if path != STANDARD_OUTPUT:
        with whole_file(path) as file:
            yield file
        return
    sys.stdout.flush()
    text = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="")
    try:
        yield text
        text.flush()
    except OSError as error:
        drop_standard_output()
        raise AiowheelError(f"standard output: {error.strerror}") from error
    finally:
        text.detach()
