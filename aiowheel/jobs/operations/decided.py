"""What the second stage writes for the first: operations decided before all keys. Rank 5.

The first stage keeps a copy of an operation under each key that has not been met. An "any"
operation that completes by one key leaves its copies under the others, until its deadline or for
ever. So the second stage writes such operations into a folder of the checkpoint, one file a
micro-batch and shard, and in the next micro-batch the first stage drops their copies.

A drop never changes an outcome, because the second stage ignores what comes of a decided
operation. But it may only be seen by later micro-batches: one that is repeated after a crash must
still find the hits that decide.
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

#: Ids are unique in a trace; the time distinguishes a repeated one from the decided one.
Decision = tuple[str, int]

_SCHEMA: Final = pa.schema({"id": pa.string(), "created": pa.int64()})
_BATCH_ID: Final = "streaming.sql.batchId"  # a local property of its tasks


@dataclass(frozen=True, slots=True)
class Decided:
    """The folder of decided operations; goes to the workers as it is.

    Attributes:
        folder: On a disk that driver and executors share, as a checkpoint is.
    """

    folder: Path

    def write(self, batch_id: int, shard: int, decisions: list[Decision]) -> None:
        """Write what a shard of the second stage has decided; again after a crash."""
        place = self.folder / f"{batch_id:09d}"
        place.mkdir(parents=True, exist_ok=True)
        hidden = place / f".{shard}.{os.getpid()}.tmp"
        hidden.write_bytes(pack(_SCHEMA, decisions))
        hidden.replace(place / str(shard))

    def before(self, batch_id: int) -> set[Decision]:
        """Read what was decided in earlier micro-batches and may still have copies."""
        found: set[Decision] = set()
        for place in self._batches():
            if int(place.name) < batch_id:
                for file in place.iterdir():
                    if not file.name.startswith("."):
                        found.update((id_, at) for id_, at in unpack(file.read_bytes()))
        return found

    def forget(self) -> None:
        """Remove what every shard of the first stage has read; for the driver, in a micro-batch.

        A decision needs an advance of the watermark, and each advance wakes all shards that hold
        something. So the shards have read everything but the newest files before those of this
        micro-batch, and these stay for a repetition.
        """
        for place in self._batches()[:-2]:
            shutil.rmtree(place, ignore_errors=True)

    def _batches(self) -> list[Path]:
        return sorted(self.folder.iterdir()) if self.folder.exists() else []


def current_batch() -> int:
    """The number of the micro-batch to which the running task belongs."""
    context = TaskContext.get()
    number = context.getLocalProperty(_BATCH_ID) if context is not None else None
    if number is None:
        raise RuntimeError("no task of a micro-batch runs in this process")
    return int(number)
