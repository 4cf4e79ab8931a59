"""Idle detection as a Spark job: integer times and one window function, no Python UDF. Rank 5.

Text is read by the reader every engine uses and staged as Parquet, so that there is one parser and
one set of rules for bad rows. Parquet is read by Spark itself, see `_parquet_touches`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.readers import Batch

_TYPES: dict[str, pa.DataType] = {"key": pa.string(), "t": pa.int64()}  # t in the run's unit
ROWS = pa.schema(_TYPES)

_BATCHES_A_ROW_GROUP = 64  # about a million rows: Spark splits files between row groups only


@dataclass(frozen=True, slots=True)
class FoundIdle:
    """What the job found, in files that the caller removes.

    Attributes:
        keys: Distinct keys among the rows.
        folder: The events as Parquet, sorted over all of its parts.
    """

    keys: int
    folder: Path

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Walk over ``(fire, key)`` by fire time, then by key as UTF-8 bytes."""
        # Spark numbers the parts of a sorted result in its order.
        for part in sorted(self.folder.glob("part-*.parquet")):
            with pq.ParquetFile(part) as file:
                for batch in file.iter_batches():  # pyright: ignore[reportUnknownMemberType]
                    columns = batch.to_pydict()
                    fires = cast("list[int]", columns["fire"])
                    yield from zip(fires, cast("list[str]", columns["key"]), strict=True)


def stage_rows(batches: Iterable[Batch], file: Path) -> None:
    """Write rows as the Parquet file the job reads; memory for about a million rows."""
    iterator = iter(batches)
    with pq.ParquetWriter(file, ROWS, compression="zstd") as writer:
        while group := [_arrow(batch) for batch in islice(iterator, _BATCHES_A_ROW_GROUP)]:
            table = pa.Table.from_batches(group, ROWS)
            writer.write_table(table, row_group_size=max(1, table.num_rows))


def find_idle(rows: DataFrame, timeout: int, scratch: Path) -> FoundIdle:
    """Run the job.

    Args:
        rows: ``key: string, t: bigint``, from files that the workers see.
        timeout: In the unit of the rows, above 0.
        scratch: A folder that does not exist yet, for the result.

    Cost: that of the window query and of a sort of the events. Sorting the query's own result
    would run it twice, once for a sample; so it is written first.
    """
    counts = Observation()
    # Each key has one last row, and is idle after it.
    events = idle_events(rows, timeout).observe(counts, F.count_if("last").alias("keys"))
    events.select("fire", "key").write.parquet(str(scratch / "found"))
    found = rows.sparkSession.read.parquet(str(scratch / "found"))
    found.orderBy("fire", "key").write.parquet(str(scratch / "sorted"))
    return FoundIdle(int(counts.get["keys"]), scratch / "sorted")


def idle_events(rows: DataFrame, timeout: int) -> DataFrame:
    """Select ``fire: bigint, key: string, last: boolean`` from ``key: string, t: bigint``.

    The rule is that of the wheel: idle at t + timeout if the key's next t is later than that, or
    if there is none, and then it is the key's last event; a tie keeps the key alive.
    """
    by_time = Window.partitionBy("key").orderBy("t")
    fire, next_t = F.col("t") + F.lit(timeout), F.col("next_t")
    return (
        rows.select("key", "t", F.lead("t").over(by_time).alias("next_t"))
        .where(next_t.isNull() | (next_t > fire))
        .select(fire.alias("fire"), "key", next_t.isNull().alias("last"))
    )


def _arrow(batch: Batch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"key": batch.keys, "t": batch.times}, schema=ROWS)
