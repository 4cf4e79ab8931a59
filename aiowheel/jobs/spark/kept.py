"""Computing and counting a frame once, independent of its writer. Rank 5."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame


@contextmanager
def kept_on_disk(frame: DataFrame) -> Generator[tuple[DataFrame, int]]:
    """Yield *frame*, kept on the workers' disks during the block, and its number of rows.

    For writers that report no row count or may skip a frame: a stateful query must process each
    micro-batch, and only once.
    """
    kept = frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield kept, kept.count()
    finally:
        kept.unpersist()
