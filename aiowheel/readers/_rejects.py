"""Writing rejected rows to a CSV file. Rank 4."""

import contextlib
import csv
from collections.abc import Callable, Generator
from pathlib import Path

from aiowheel._outputs import CsvLines, whole_file
from aiowheel.errors import AiowheelError
from aiowheel.readers._table import Reject


@contextlib.contextmanager
def write_rejects(path: Path) -> Generator[Callable[[Reject], object]]:
    """Yield a function that adds a row to a CSV file; the file appears when the block ends.

    The file has a header and the columns of `Reject`; it is written even if no row is added. If
    the block raises, *path* is left unchanged.

    Raises:
        AiowheelError: The file cannot be written, or *path* is no regular file.
    """
    # Bytes of the input that were not UTF-8 are written back unchanged.
    with whole_file(path, errors="surrogateescape") as file:
        writer = csv.writer(CsvLines(file))
        writer.writerow(Reject._fields)

        def put(reject: Reject) -> None:
            try:
                writer.writerow((*reject[:-1], str(reject.used).lower()))
            except OSError as error:  # the reader would report an OSError as an error of its input
                raise AiowheelError(f"{path}: {error.strerror}") from error

        yield put
