"""The Parquet files of a table; those of a micro-batch are few, by day, sorted by time. Rank 5.

Each task of a stateful query would write a file of its own, even for a single row.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.jobs.spark.session import changed_settings
from aiowheel.readers import Unit

_DAY: Final = "day"  # the column of the date
_DAY_SECONDS: Final = 86_400
_LAST_DAY: Final = 2_932_896  # 9999-12-31; the text of later dates does not sort by time
_BY_SIZE: Final = {
    "spark.sql.adaptive.enabled": "true",  # off in a streaming query
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
}


class RowTime(NamedTuple):
    """The time of the rows of a table.

    Attributes:
        column: The column with the time, since 1970 and at least 0.
        unit: The unit of the time.
    """

    column: str
    unit: Unit

    @property
    def day(self) -> Column:
        """The date in UTC; the last day of 9999 for later times."""
        units = F.lit(_DAY_SECONDS * self.unit.per_second).cast("bigint")
        days = F.call_function("div", F.col(self.column), units)
        return F.date_from_unix_date(F.least(days, F.lit(_LAST_DAY)).cast("int"))


@contextmanager
def in_few_parts(
    frame: DataFrame, time: RowTime | None
) -> Generator[tuple[DataFrame, Sequence[str]]]:
    """Yield *frame* in as few parts as Spark's target for the size of a part allows.

    The second value is the argument *by* of `write_files`.

    The target is the setting ``spark.sql.adaptive.advisoryPartitionSizeInBytes``.

    Args:
        frame: The rows of a micro-batch.
        time: The time of the rows, which get a column of the date, and are sorted by time within
            each part; None for rows without a time.

    Cost: a shuffle of the rows.
    """
    with changed_settings(frame.sparkSession, _BY_SIZE):
        if time is None:
            yield frame.hint("rebalance"), ()
        else:
            rows = frame.withColumn(_DAY, time.day).hint("rebalance", _DAY)
            yield rows.sortWithinPartitions(_DAY, time.column), (_DAY,)


def write_files(
    frame: DataFrame, path: str, by: Sequence[str] = (), *, mode: str = "overwrite", **options: str
) -> int:
    """Write *frame* as Parquet to the folder *path*; return the number of rows.

    Args:
        frame: The rows.
        path: The folder, for Spark.
        by: Columns whose values have folders of their own in it.
        mode: What Spark does with the contents of the folder: it replaces them, or with
            ``errorifexists`` raises.
        options: Additional options of the writer.

    Cost: one action on *frame*.
    """
    rows = Observation()
    counted = frame.observe(rows, F.count(F.lit(1)).alias("rows"))
    # In mode "dynamic", which a cluster's settings may select, Spark would create no file _SUCCESS,
    # and would keep the other days of an earlier attempt.
    fixed = {"compression": "zstd", "partitionOverwriteMode": "static"}
    writer = counted.write.mode(mode).options(**fixed, **options)
    writer.partitionBy(*by).parquet(path)
    return int(rows.get["rows"])
