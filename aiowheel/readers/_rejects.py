"""Writing rejected rows to a CSV file. Rank 4."""

import contextlib
import csv
import os
from collections.abc import Generator
from pathlib import Path
from typing import TextIO

from aiowheel._outputs import CsvLines, whole_file
from aiowheel.errors import AiowheelError
from aiowheel.readers._table import Reject


class RejectsFile:
    """A CSV file that `write_rejects` has opened. Call it with a rejected row to add the row."""

    def __init__(self, path: Path, file: TextIO) -> None:
        self._path = path
        self._file = file
        self._writer = csv.writer(CsvLines(file))
        self._writer.writerow(Reject._fields)

    def __call__(self, reject: Reject) -> None:
        try:
            self._writer.writerow((*reject[:-1], str(reject.used).lower()))
        except OSError as error:  # the reader would report an OSError as an error of its input
            raise self._refused(error) from error

    def sync(self) -> None:
        """Force all rows to the disk; after that, a full disk cannot refuse the file any more.

        Raises:
            AiowheelError: The disk refuses.
        """
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> AiowheelError:
        return AiowheelError(f"{self._path}: {error.strerror}")


@contextlib.contextmanager
def write_rejects(path: Path) -> Generator[RejectsFile]:
    """Yield a CSV file for rejected rows; the file appears when the block ends.

    The file has a header and the columns of `Reject`; it is written even if no row is added. If
    the block raises, *path* is left unchanged.

    Raises:
        AiowheelError: The file cannot be written, or *path* is no regular file.
    """
    # Bytes of the input that were not UTF-8 are written back unchanged.
    with whole_file(path, errors="surrogateescape") as file:
        yield RejectsFile(path, file)
