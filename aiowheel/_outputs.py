"""Files and folders of results that appear whole or not at all. Rank 4.

Source: a rename within one file system is atomic. A hidden name beside the place takes what is
half-written, and goes away when the block fails.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import TextIO

from aiowheel.errors import AiowheelError


@contextlib.contextmanager
def whole_file(path: Path, *, errors: str = "strict") -> Generator[TextIO]:
    """Open a hidden file that replaces *path* when the block ends without an error.

    A symbolic link stays: the file that it points to is replaced.

    Args:
        path: Of the result.
        errors: What to do with text that is no UTF-8, as of `open`.

    Raises:
        AiowheelError: The disk refuses; *path* is then as it was before.
    """
    place = Path(os.path.realpath(path))
    hidden = place.with_name(_hidden_name())
    try:
        with hidden.open("x", encoding="utf-8", errors=errors, newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(place)
    except OSError as error:
        raise _refused(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            hidden.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(folder: Path) -> Generator[Path]:
    """Make a hidden folder whose files move to *folder* when the block ends without an error.

    A folder that does not exist appears by one rename. In one that does, each file replaces the
    earlier one of its name, and other files stay.

    Raises:
        AiowheelError: The disk refuses; *folder* is then as it was before.
    """
    place = Path(os.path.realpath(folder))
    # Inside a folder that exists, which may be a file system of its own.
    near = next(parent for parent in (place, *place.parents) if parent.is_dir())
    hidden = near / _hidden_name()
    try:
        hidden.mkdir()
        yield hidden
        _move(hidden, place)
    except OSError as error:
        raise _refused(folder, error) from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def _move(hidden: Path, place: Path) -> None:
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        hidden.rename(place)
        return
    files = sorted(hidden.iterdir())
    for file in files:  # before the first is moved
        if (place / file.name).is_dir():
            raise IsADirectoryError(21, "a folder has the name of a result", str(file))
    for file in files:
        file.replace(place / file.name)


def _hidden_name() -> str:
    return f".aiowheel-{secrets.token_hex(8)}.tmp"  # as long for every result, and never taken


def _refused(path: Path, error: OSError) -> AiowheelError:
    return AiowheelError(f"{path}: {error.strerror or error}")
