"""`aiowheel flush`: end a stream. Rank 5."""

from pathlib import Path
from typing import Annotated

import typer

from aiowheel._printable import printable
from aiowheel.jobs.spark.checkpoint import Checkpoint


def flush(
    *,
    checkpoint: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Of the stream, of either job.")
    ],
) -> None:
    """Have a stream work off its input, let time run out for all that is open, and end.

    A stream cannot know that nothing will come any more: without this its last operations wait.
    One that runs ends within seconds, one that does not when it is next started.

    \b
    Example:
      aiowheel flush --checkpoint found/checkpoint
    """
    Checkpoint(checkpoint).request_flush()
    print(f"the stream of {printable(checkpoint)} ends once its input is worked off")
