"""Where a result may be written: checked before the work, and written whole. Rank 5."""

import contextlib
import io
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TextIO

from aiowheel._outputs import whole_file
from aiowheel.errors import AiowheelError, BadInputError

#: `-`: the result goes to standard output.
STANDARD_OUTPUT = Path("-")


def check_destination(path: Path, option: str = "--out", *, or_stdout: bool = False) -> None:
    """Refuse a path that cannot become a file.

    A symbolic link stands for the file that it points to.

    Args:
        path: As the user wrote it.
        option: The name of the option.
        or_stdout: Take `-` as well.

    Raises:
        BadInputError: The folder is missing or not writable, or the path is something else than a
            file. Results are renamed into place, which would put a file where a device was.
    """
    if path == STANDARD_OUTPUT:
        if or_stdout:
            return
        raise BadInputError(f"{option} must be a file, got -: it cannot go to standard output")
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
            # As /dev/stdout is, sent to a file. What is printed would go to the file replaced.
            raise BadInputError(f"{option} must be another file than standard output, got {path}")


def check_folder(path: Path, option: str = "--out") -> None:
    """Refuse a path that is no folder of ours to write to and cannot become one.

    Raises:
        BadInputError: It is `-`, a file or a device, or closed to us, or lies in such a place.
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


@contextlib.contextmanager
def open_destination(path: Path) -> Generator[TextIO]:
    """Open a file that replaces *path* when the block ends without an error, or standard output.

    The text is UTF-8 with the line ends that are written, in both.

    Raises:
        AiowheelError: The disk refuses, and *path* is as it was before; or the reader of standard
            output has gone.
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
        # What is left in the buffers would fail once more when the interpreter ends.
        with contextlib.suppress(OSError), open(os.devnull, "wb") as nothing:  # noqa: PTH123
            os.dup2(nothing.fileno(), sys.stdout.fileno())
        raise AiowheelError(f"standard output: {error.strerror}") from error
    finally:
        text.detach()
