"""Idle detection as a Spark job: integer times and one window function, no Python UDF. Rank 5.

The rows come from the reader every engine uses, staged as Parquet, so that there is one parser and
one set of rules for bad rows; Spark sorts, decides and orders the result.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.readers import Batch

_TYPES: dict[str, pa.DataType] = {"key": pa.string(), "t": pa.int64()}  # t in the run's unit
ROWS = pa.schema(_TYPES)

_BATCHES_A_ROW_GROUP = 64  # about a million rows: Spark splits files between row groups only


def stage_rows(batches: Iterable[Batch], file: Path) -> None:
    """Write rows as the Parquet file the job reads; memory for about a million rows."""
    iterator = iter(batches)
    with pq.ParquetWriter(file, ROWS, compression="zstd") as writer:
        while group := [_arrow(batch) for batch in islice(iterator, _BATCHES_A_ROW_GROUP)]:
            table = pa.Table.from_batches(group, ROWS)
            writer.write_table(table, row_group_size=max(1, table.num_rows))


def find_idle(
    spark: SparkSession, rows: Path, timeout: int, scratch: Path
) -> Iterator[tuple[int, str]]:
    """Run the job and yield ``(fire, key)`` by fire time, then by key as UTF-8 bytes.

    Args:
        spark: An open session whose workers see the files of this machine.
        rows: A file made by `stage_rows`.
        timeout: In the unit of the rows, above 0.
        scratch: A folder that does not exist yet, for the result; the caller removes it.
    """
    events = idle_events(spark.read.parquet(str(rows)), timeout)
    events.orderBy("fire", "key").write.parquet(str(scratch))
    # Spark numbers the parts of a sorted result in its order.
    for part in sorted(scratch.glob("part-*.parquet")):
        with pq.ParquetFile(part) as file:
            for batch in file.iter_batches():  # pyright: ignore[reportUnknownMemberType]
                columns = batch.to_pydict()
                fires, keys = cast("list[int]", columns["fire"]), cast("list[str]", columns["key"])
                yield from zip(fires, keys, strict=True)


def count_keys(spark: SparkSession, rows: Path) -> int:
    """Count the distinct keys of a file made by `stage_rows`."""
    return spark.read.parquet(str(rows)).select("key").distinct().count()


def idle_events(rows: DataFrame, timeout: int) -> DataFrame:
    """Select ``fire: bigint, key: string`` from rows of ``key: string, t: bigint``.

    The rule is that of the wheel: idle at t + timeout if the key's next t is later than that, or
    if there is none; a tie keeps the key alive.
    """
    by_time = Window.partitionBy("key").orderBy("t")
    return (
        rows.select("key", "t", F.lead("t").over(by_time).alias("next_t"))
        .where(F.col("next_t").isNull() | (F.col("next_t") > F.col("t") + F.lit(timeout)))
        .select((F.col("t") + F.lit(timeout)).alias("fire"), "key")
    )


def _arrow(batch: Batch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"key": batch.keys, "t": batch.times}, schema=ROWS)
