"""The operations that the second stage has decided before all keys are met. Rank 5.

The first stage keeps a copy of an operation under each key that is not met yet. An operation in
mode "any" completes by one key and leaves its copies under the other keys, until its deadline or
without end. So the second stage writes such operations to a folder of the checkpoint, one file per
micro-batch and shard, and the first stage drops their copies in the next micro-batch.

Dropping a copy never changes an outcome, because the second stage ignores the hits of a decided
operation. But a micro-batch may only use decisions of earlier ones: a micro-batch that is repeated
after a crash must find the hits again that led to the decision.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

from aiowheel.jobs.spark.packs import pack, unpack

#: Ids are unique in a trace; the creation time distinguishes a reused id from the decided one.
Decision = tuple[str, int]

_SCHEMA: Final = pa.schema({"id": pa.string(), "created": pa.int64()})
_BATCH_ID: Final = "streaming.sql.batchId"  # a local property of the tasks of a micro-batch


@dataclass(frozen=True, slots=True)
class Decided:
    """The folder of decided operations; Spark pickles this object for its workers.

    Attributes:
        folder: A folder on a disk that driver and executors share, like the checkpoint.
    """

    folder: Path

    def write(self, batch_id: int, shard: int, decisions: list[Decision]) -> None:
        """Write the decisions of a shard of the second stage; a repetition overwrites the file."""
        place = self.folder / f"{batch_id:09d}"
        place.mkdir(parents=True, exist_ok=True)
        hidden = place / f".{shard}.{os.getpid()}.tmp"
        hidden.write_bytes(pack(_SCHEMA, decisions))
        hidden.replace(place / str(shard))

    def before(self, batch_id: int) -> set[Decision]:
        """Return the decisions of earlier micro-batches whose copies may still exist."""
        found: set[Decision] = set()
        for place in self._batches():
            if int(place.name) < batch_id:
                for file in place.iterdir():
                    if not file.name.startswith("."):
                        found.update((id_, at) for id_, at in unpack(file.read_bytes()))
        return found

    def forget(self) -> None:
        """Remove files that every shard of the first stage has read; the driver calls it per batch.

        A decision requires that the watermark moves, and each move wakes all shards that hold
        rows. So the shards have read all files but the newest before those of this micro-batch,
        and the newest are kept in case the micro-batch is repeated.
        """
        for place in self._batches()[:-2]:
            shutil.rmtree(place, ignore_errors=True)

    def _batches(self) -> list[Path]:
        return sorted(self.folder.iterdir()) if self.folder.exists() else []


def current_batch() -> int:
    """Return the number of the micro-batch to which the running task belongs."""
    context = TaskContext.get()
    number = context.getLocalProperty(_BATCH_ID) if context is not None else None
    if number is None:
        raise RuntimeError("no task of a micro-batch runs in this process")
    return int(number)
