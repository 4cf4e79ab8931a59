"""A frame worked off once and counted, whatever a writer makes of it. Rank 5."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame


@contextmanager
def kept_on_disk(frame: DataFrame) -> Generator[tuple[DataFrame, int]]:
    """Give *frame*, kept on the workers' disks inside the block, and the number of its rows.

    For writers in whose work Spark observes nothing, or that pass over a frame: a query with state
    must work off each micro-batch, and only once.
    """
    kept = frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield kept, kept.count()
    finally:
        kept.unpersist()
