"""The pending operations of a streaming purgatory, read from its checkpoint. Rank 5."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from aiowheel.errors import BadInputError
from aiowheel.jobs.operations.shard_state import count_in_state, read_state
from aiowheel.jobs.operations.stages import STATE_NAME, key_of_hit
from aiowheel.jobs.spark.checkpoint import Checkpoint
from aiowheel.jobs.spark.packs import batch_of
from aiowheel.jobs.spark.uris import spark_file
from aiowheel.jobs.spark.values import ddl
from aiowheel.rules import NEVER, Operation

_DECIDING = 0  # Spark counts stateful operators from the end of the query
_PENDING = pa.schema(
    {
        "id": pa.string(),
        "missing": pa.list_(pa.string()),
        "wanted": pa.int64(),
        "created": pa.int64(),
        "deadline": pa.int64(),
    }
)
_ROWS = 8_192


class Pending(NamedTuple):
    """A pending operation.

    Attributes:
        id: The id of the operation.
        keys: The keys that it has not met.
        wanted: How many of them must still be met.
        created: In the unit of the stream.
        deadline: In the unit of the stream; None for no deadline.
    """

    id: str
    keys: tuple[str, ...]
    wanted: int
    created: int
    deadline: int | None


def check_checkpoint(checkpoint: Path) -> None:
    """Check that the folder is a checkpoint of a streaming purgatory.

    Raises:
        BadInputError: It is not, or its settings cannot be read.
    """
    if Checkpoint(checkpoint).job() != "purgatory":
        raise BadInputError(f"{checkpoint}: no checkpoint of a streaming purgatory")


def pending_operations(spark: SparkSession, checkpoint: Path, limit: int) -> list[Pending]:
    """Return the *limit* oldest pending operations after the last finished micro-batch, in order.

    Includes operations that were read but lie after the watermark.

    Raises:
        AiowheelError: The state has another version.

    Cost: each task reads its shards, and the driver receives *limit* rows.
    """
    with _state(spark, checkpoint) as state:
        if state is None:
            return []
        rows = state.mapInArrow(_listed, ddl(_PENDING)).orderBy("created", "id").limit(limit)
        return [Pending(row.id, tuple(row.missing), *row[2:]) for row in rows.collect()]


def _listed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for version, data in zip(*batch.to_pydict().values(), strict=True):
            waiting, created, _hits = read_state(version, data)
            rows = [_pending(row) for row in (*waiting, *created)]
            for start in range(0, len(rows), _ROWS):
                yield batch_of(_PENDING, rows[start : start + _ROWS])


def count_pending(spark: SparkSession, checkpoint: Path) -> int:
    """Count the pending operations, without collecting them on the driver.

    Raises:
        AiowheelError: The state has another version.
    """

    def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counts = [
                count_in_state(version, data)
                for version, data in zip(*batch.to_pydict().values(), strict=True)
            ]
            yield pa.RecordBatch.from_pydict({"count": pa.array(counts, pa.int64())})

    with _state(spark, checkpoint) as state:
        if state is None:
            return 0
        total = state.mapInArrow(counted, "count bigint").groupBy().sum("count").first()
        return int(total[0] or 0) if total else 0


@contextmanager
def _state(spark: SparkSession, checkpoint: Path) -> Generator[DataFrame | None]:
    """Yield version and data of each shard; None before the first micro-batch has finished."""
    if Checkpoint(checkpoint).last_finished_batch() < 0:
        yield None
        return
    # Executors of Spark 4.1 can read state only if the session has begun its streams (SPARK-58973).
    _ = spark.streams.active
    with _plain(checkpoint) as place:
        yield (
            spark.read.format("statestore")
            .option("operatorId", _DECIDING)
            .option("stateVarName", STATE_NAME)
            .load(spark_file(place))
            .select("value.version", "value.data")
        )


@contextmanager
def _plain(checkpoint: Path) -> Generator[Path]:
    """Yield the folder by a path without special characters, which Spark would percent-encode."""
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
