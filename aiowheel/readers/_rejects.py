"""The rows that were put aside, as a file of their own. Rank 4."""

import contextlib
import csv
from collections.abc import Callable, Generator
from pathlib import Path

from aiowheel._outputs import whole_file
from aiowheel.errors import AiowheelError
from aiowheel.readers._table import Reject


@contextlib.contextmanager
def write_rejects(path: Path) -> Generator[Callable[[Reject], object]]:
    """Hand out a function that adds a row to a CSV file, which appears whole on leaving the block.

    The file has a header and the columns of `Reject`, and is there without a row too. When the
    block fails, *path* is as it was before.

    Raises:
        AiowheelError: The disk refuses.
    """
    # What was no UTF-8 in the input goes out as the bytes that came in.
    with whole_file(path, errors="surrogateescape") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Reject._fields)

        def put(reject: Reject) -> None:
            try:
                writer.writerow((*reject[:-1], str(reject.used).lower()))
            except OSError as error:  # else the reader takes it for its own, and names the input
                raise AiowheelError(f"{path}: {error.strerror}") from error

        yield put
