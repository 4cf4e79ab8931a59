"""Files and folders of results that appear as a whole or not at all. Rank 4.

A rename within one file system is atomic. An incomplete result has a hidden name beside its final
one, and is removed if the block fails.
"""

import contextlib
import os
import secrets
import shutil
import sys
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import TextIO

from aiowheel.errors import AiowheelError, BadInputError

BATCH_PREFIX = "batch_id="  #: prefix of the name of the folder of a stream's micro-batch
#: The file with a stream's id in the folder of its batches. Readers of Parquet ignore such names.
STREAM_OWNER = "_aiowheel_stream"


@contextlib.contextmanager
def whole_file(path: Path, *, errors: str = "strict") -> Generator[TextIO]:
    """Open a hidden file that replaces *path* when the block ends without an error.

    A symbolic link stays: the file that it points to is replaced. The new file has the permissions
    of the one that it replaces. Once the block has ended, it also survives a loss of power.

    Args:
        path: The path of the result.
        errors: The treatment of text that is not UTF-8, as for `open`.

    Raises:
        AiowheelError: The disk refuses, or *path* is no regular file; *path* is then as it was
            before.
    """
    place = Path(os.path.realpath(path))
    hidden = place.with_name(hidden_name())
    try:
        if place.exists() and not place.is_file():  # the rename would replace a device or a pipe
            raise AiowheelError(
                f"{path}: must be a file, and is a folder, a device, a pipe or a socket"
            )
        with hidden.open("x", encoding="utf-8", errors=errors, newline="") as file:
            with contextlib.suppress(OSError):  # there is no earlier file
                shutil.copymode(place, hidden)
            yield file
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(place)
        sync_folder(place.parent)
    except ConnectionError:  # raised by the block: a disk never raises it
        raise
    except OSError as error:
        raise _refused(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            hidden.unlink(missing_ok=True)


def drop_standard_output() -> None:
    """Send the rest of standard output to the null device, after an error of writing to it.

    Without this, flushing the buffers would raise again when the interpreter exits.
    """
    with contextlib.suppress(OSError), open(os.devnull, "wb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), sys.stdout.fileno())


class CsvLines:
    """A text file for `csv.writer` whose lines end in LF.

    Before Python 3.13, a writer with another ``lineterminator`` than its default leaves other line
    ends in fields unquoted, and readers take them for ends of rows.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, line: str, /) -> None:
        self._file.write(line.removesuffix("\r\n") + "\n")


@contextlib.contextmanager
def whole_folder(folder: Path) -> Generator[Path]:
    """Create a hidden folder that becomes *folder* when the block ends without an error.

    If *folder* does not exist, it appears by one rename. If it exists, each new file or folder
    replaces the earlier one of its name, and others stay.

    Raises:
        AiowheelError: The disk refuses; *folder* is then as it was before, unless the disk refuses
            one of several results after it took others.
    """
    place = Path(os.path.realpath(folder))
    # Inside an existing folder, so that both are on the same file system.
    near = next(parent for parent in (place, *place.parents) if parent.is_dir())
    hidden = near / hidden_name()
    try:
        hidden.mkdir()
        yield hidden
        _move(hidden, place)
    except ConnectionError:
        raise
    except OSError as error:
        raise _refused(folder, error) from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def hidden_name() -> str:
    """Return the name of a new hidden file or folder: unique, and of one length for all results."""
    return f".aiowheel-{secrets.token_hex(8)}.tmp"


def check_table(folder: Path) -> None:
    """Refuse a folder that a new table would replace together with the files of others.

    Raises:
        BadInputError: It is a file; or see `check_files`.
    """
    if folder.exists() and not folder.is_dir():
        raise BadInputError(f"{folder}: must be a folder for a table, and is a file")
    paths = (path for path in folder.rglob("*") if not path.is_dir())
    check_files(str(folder), (path.relative_to(folder).as_posix() for path in paths))


def check_files(folder: str, files: Iterable[str]) -> None:
    """Refuse the files of a folder, if a new table must not replace them.

    Args:
        folder: The folder, for the error.
        files: The paths of its files at every depth, relative to *folder*.

    Raises:
        BadInputError: A file is not one of a table, or belongs to a stream.
    """
    for file in files:
        *folders, name = file.split("/")
        if name == STREAM_OWNER or any(part.startswith(BATCH_PREFIX) for part in folders):
            raise BadInputError(
                f"{folder}: holds the batches of a stream, which would be deleted: choose another "
                "folder"
            )
        if not (name.endswith((".parquet", ".crc")) or name == "_SUCCESS"):
            raise BadInputError(
                f"{folder}: would be replaced, but holds {file}, which is no file of a result: "
                "choose another folder"
            )


def sync_folder(folder: Path) -> None:
    """Force the names in *folder* to the disk, as after a rename, if the system supports it.

    Windows does not, nor do some network file systems.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _move(hidden: Path, place: Path) -> None:
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        hidden.rename(place)
        return
    results = sorted(hidden.iterdir())
    for result in results:  # check all before the first is moved
        there = place / result.name
        if there.exists() and there.is_dir() != result.is_dir():
            raise AiowheelError(f"{there}: is in the way of a result of this name")
    for result in results:
        if result.is_dir() and (there := place / result.name).exists():
            there.rename(hidden / f"{result.name}.earlier")  # removed with the hidden folder
        result.replace(place / result.name)


def _refused(path: Path, error: OSError) -> AiowheelError:
    # The system's text for the error number, because Arrow's own text has several parts.
    return AiowheelError(f"{path}: {os.strerror(error.errno) if error.errno else error}")
