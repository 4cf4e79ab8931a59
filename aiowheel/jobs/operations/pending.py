"""What a streaming purgatory holds, read from its checkpoint. Rank 5."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import quote

from pyspark.sql import SparkSession

from aiowheel.errors import BadInputError
from aiowheel.jobs.operations.shard_state import read_state
from aiowheel.jobs.operations.stages import STATE_NAME, key_of_hit
from aiowheel.jobs.spark.checkpoint import Checkpoint
from aiowheel.rules import NEVER, Operation

_DECIDING = 0  # Spark counts stateful operators from the end of the query


class Pending(NamedTuple):
    """An operation that waits.

    Attributes:
        id: Its id.
        keys: Those it has not met.
        wanted: How many of them it still needs.
        created: In the unit of the stream.
        deadline: In the unit of the stream; None is never.
    """

    id: str
    keys: tuple[str, ...]
    wanted: int
    created: int
    deadline: int | None


def pending_operations(spark: SparkSession, checkpoint: Path) -> list[Pending]:
    """Read the operations that wait as of the last finished micro-batch, the oldest first.

    Those that have come but lie after the watermark are among them.

    Raises:
        BadInputError: The folder is no checkpoint of a streaming purgatory.
        AiowheelError: Its state is of another version.
    """
    if Checkpoint(checkpoint).job() != "purgatory":
        raise BadInputError(f"{checkpoint}: no checkpoint of a streaming purgatory")
    if not any((checkpoint / "commits").glob("[0-9]*")):
        return []
    with _plain(checkpoint) as place:
        values = (
            spark.read.format("statestore")
            .option("operatorId", _DECIDING)
            .option("stateVarName", STATE_NAME)
            .load(str(place))
            .select("value.version", "value.data")
            .collect()
        )
    found: list[Pending] = []
    for version, data in values:
        waiting, created, _hits = read_state(version, bytes(data))
        found += [_pending(row) for row in (*waiting, *created)]
    return sorted(found, key=lambda row: (row.created, row.id))


@contextmanager
def _plain(checkpoint: Path) -> Generator[Path]:
    """The folder by a name without spaces and the like: Spark would look for one with `%20`."""
    place = checkpoint.resolve()
    if quote(str(place)) == str(place):
        yield place
        return
    with TemporaryDirectory(prefix="aiowheel-pending-") as folder:
        link = Path(folder, "checkpoint")
        link.symlink_to(place)
        yield link


def _pending(row: Operation) -> Pending:
    keys = tuple(str(key_of_hit(row.id, key)) for key in row.keys)
    deadline = None if row.deadline == NEVER else row.deadline
    return Pending(row.id, keys, row.wanted, row.created, deadline)
