"""`aiowheel flush`: ends a stream after its input is processed. Rank 5."""

from pathlib import Path
from typing import Annotated

import typer

from aiowheel._printable import printable
from aiowheel.cli._options import path_of
from aiowheel.jobs.spark.checkpoint import Checkpoint


def flush(
    *,
    checkpoint: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", help="Checkpoint of the stream, of either job.", parser=path_of
        ),
    ],
) -> None:
    """Make a stream process its remaining input, expire all that is pending, and end.

    A stream cannot detect the end of its input; without this command, its last operations stay
    pending. A running stream ends within seconds, a stopped stream after its next start.

    \b
    Example:
      aiowheel flush --checkpoint found/checkpoint
    """
    Checkpoint(checkpoint).request_flush()
    print(f"the stream of {printable(checkpoint)} ends once its input is processed")
