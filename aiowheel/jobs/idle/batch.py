"""Idle detection as a Spark batch job: integer times and a window function, no Python UDF. Rank 5.

The rows are shuffled once, by key. Each task sorts the events of its keys by time and writes them
to one file (a part); merging the parts yields all events in order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.jobs.idle.merge import events_in, merged_parts
from aiowheel.jobs.spark.layout import write_files
from aiowheel.jobs.spark.sinks import check_rows_in
from aiowheel.jobs.spark.uris import spark_file

# Rows that one task sorts in memory; ten times as many would take a tenth more time.
_ROWS_A_TASK = 1_000_000
_MOST_TASKS = 500  # all parts are open at the same time


@dataclass(frozen=True, slots=True)
class FoundIdle:
    """The result of the job, in files that the caller removes.

    Attributes:
        folder: The events as Parquet parts, each sorted by time.
    """

    folder: Path

    @property
    def parts(self) -> list[Path]:
        """The files of the parts."""
        return sorted(self.folder.glob("*.parquet"))

    def count_keys(self) -> int:
        """Count the distinct keys among the rows, by the last event of each key."""
        return sum(len(counts) - counts.null_count for counts in self._counts())

    def count_rows(self) -> int:
        """Count the rows."""
        return sum(pc.sum(counts, min_count=0).as_py() for counts in self._counts())

    def _counts(self) -> Iterator[pa.Array]:
        for part in self.parts:
            with pq.ParquetFile(part) as file:
                for batch in file.iter_batches(columns=["key_rows"]):
                    yield batch.column("key_rows")

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield ``fire: int64, key: string`` by fire time, then by key as UTF-8 bytes.

        Holds about a million events in memory, or all events of one instant if these are more.
        """
        return merged_parts(self.parts)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Iterate over ``(fire, key)`` in the same order."""
        for batch in self.batches():
            yield from events_in(batch)


def tasks_for(rows: int, spark_cores: int) -> int:
    """Return the number of tasks for *rows* rows."""
    return max(spark_cores, min(_MOST_TASKS, rows // _ROWS_A_TASK))


def find_idle(rows: DataFrame, timeout: int, folder: Path, tasks: int | None = None) -> FoundIdle:
    """Run the job.

    Args:
        rows: ``key: string, t: bigint``, from files that the workers can read. Rows whose optional
            column ``note`` is not null are written unchanged together with the events.
        timeout: In the unit of the rows, above 0.
        folder: The folder of the result; it must not exist yet, and the workers must be able to
            write it.
        tasks: The number of tasks; by default Spark's number of shuffle partitions.

    Raises:
        AiowheelError: The driver cannot read all rows that the workers have written.

    Cost: the window query, and a sort of the events of each task by one integer.
    """
    spark = rows.sparkSession
    count = tasks or int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    events = sorted_events(rows, timeout, count)
    written = write_files(events, spark_file(folder), mode="errorifexists")
    check_rows_in(folder, folder.parent, written)
    return FoundIdle(folder)


def sorted_events(rows: DataFrame, timeout: int, tasks: int) -> DataFrame:
    """Select the events, and the rows with a note, in *tasks* parts sorted by time; one shuffle."""
    # Sorting by one integer is a radix sort; the merge orders the keys of one instant.
    return _events_and_notes(rows.repartition(tasks, "key"), timeout).sortWithinPartitions("fire")


def column_named(name: str) -> Column:
    """Return the column of exactly this name, which `F.col` would parse: `id.orig_h` as a path."""
    quoted = name.replace("`", "``")
    return F.col(f"`{quoted}`")


def is_idle(fire: Column, next_time: Column) -> Column:
    """Return whether a key is idle at *fire*, given the time of its next row or null.

    A row exactly at *fire* keeps the key alive.
    """
    return next_time.isNull() | (next_time > fire)


def _events_and_notes(rows: DataFrame, timeout: int) -> DataFrame:
    """Select ``fire: bigint, key: string, key_rows: int``, and ``note`` if *rows* has it.

    The rule is that of the wheel: the key is idle at t + timeout if its next t is later than that
    or missing. A missing next t marks the key's last event; ``key_rows``, the number of rows of the
    key, is null in all other events. A touch exactly at t + timeout keeps the key alive; a
    purgatory decides such a tie the other way and expires the operation.
    """
    note = [name for name in rows.columns if name == "note"]
    # The 8-byte hash comes first because comparing one integer separates most keys.
    by_time = Window.partitionBy("hash", "key").orderBy("t")
    fire, next_t = F.col("t") + F.lit(timeout), F.col("next_t")
    is_event = is_idle(fire, next_t)
    for name in note:
        is_event |= F.col(name).isNotNull()
    return (
        rows.withColumn("hash", F.xxhash64("key"))
        .select(
            "key",
            "t",
            *note,
            F.lead("t").over(by_time).alias("next_t"),
            F.row_number().over(by_time).alias("number"),
        )
        .where(is_event)
        .select(
            fire.alias("fire"),
            "key",
            F.when(next_t.isNull() & F.col("key").isNotNull(), F.col("number")).alias("key_rows"),
            *note,
        )
    )
