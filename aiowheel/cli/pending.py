"""`aiowheel pending`: lists the pending operations of a streaming purgatory. Rank 5."""

from pathlib import Path
from typing import Annotated

import typer

from aiowheel._printable import cut
from aiowheel.cli._job_output import print_json, print_table
from aiowheel.cli._options import Json, number, path_of
from aiowheel.cli._session import Conf, Master, Verbose, job_session
from aiowheel.errors import MissingExtraError


def pending(
    *,
    checkpoint: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", help="Checkpoint of a stream, running or not.", parser=path_of
        ),
    ],
    limit: Annotated[int, number(min=1, help="Maximum number of operations shown.")] = 100,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """List the operations that wait after the last finished micro-batch, oldest first.

    \b
    Example:
      aiowheel pending --checkpoint found/checkpoint
      aiowheel pending --checkpoint found/checkpoint --json | jq .pending
    """
    try:
        from aiowheel.jobs.operations.pending import (
            check_checkpoint,
            count_pending,
            pending_operations,
        )
    except ImportError as error:
        raise MissingExtraError("spark") from error
    check_checkpoint(checkpoint)  # before Spark's slow start
    with job_session("pending", None, None, master=master, conf=conf, verbose=verbose) as spark:
        shown = pending_operations(spark, checkpoint, limit)
        count = count_pending(spark, checkpoint) if len(shown) == limit else len(shown)
    if json:
        print_json({"pending": count, "operations": [row._asdict() for row in shown]})
        return
    rows = [
        (
            cut(row.id),
            ", ".join(cut(key) for key in row.keys),
            str(row.wanted),
            str(row.created),
            "never" if row.deadline is None else str(row.deadline),
        )
        for row in shown
    ]
    if rows:
        print_table(("id", "missing", "wanted", "created", "deadline"), rows, texts=2)
    hidden = f", {count - len(shown):,} not shown" if count > len(shown) else ""
    print(f"{count:,} operations wait{hidden}")
