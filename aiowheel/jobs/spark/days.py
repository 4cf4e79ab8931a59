"""The rows of a micro-batch by day, in few parts: the files in a stream's folders. Rank 5.

Otherwise each task of the query would write a file, even for a single row.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.jobs.operations.schemas import per_second
from aiowheel.readers import Unit

DAY: Final = "day="  #: prefix of the name of a day's folder
ROWS_PER_FILE: Final = 4_000_000

_DAY_SECONDS: Final = 86_400
_LAST_DAY: Final = 2_932_896  # 9999-12-31; Spark has no text for later dates that sorts by time


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
        units = F.lit(_DAY_SECONDS * per_second(self.unit)).cast("bigint")
        days = F.call_function("div", F.col(self.column), units)
        return F.date_from_unix_date(F.least(days, F.lit(_LAST_DAY)).cast("int"))


@dataclass(frozen=True, slots=True)
class DayRows:
    """The rows of one day.

    Attributes:
        folder: The name of the folder of this day; empty for rows without a time.
        rows: The rows, in parts of about `ROWS_PER_FILE`; each part is sorted by time.
        count: The number of rows, above 0.
    """

    folder: str
    rows: DataFrame
    count: int


@contextmanager
def rows_by_day(frame: DataFrame, time: RowTime | None) -> Generator[list[DayRows]]:
    """Yield the rows of each day, in order; they stay on the workers' disks during the block.

    Args:
        frame: The rows of a micro-batch.
        time: The time of the rows; None for rows without one, which are not divided or sorted.

    Cost: one action on *frame*.
    """
    kept = frame.persist(StorageLevel.DISK_ONLY)
    try:
        day = F.lit(None).cast("date") if time is None else time.day
        counts = kept.groupBy(day.alias("day")).agg(F.count(F.lit(1)).alias("rows"))
        yield [_day_rows(kept, time, *row) for row in sorted(counts.collect())]
    finally:
        kept.unpersist()


def _day_rows(kept: DataFrame, time: RowTime | None, day: object, count: int) -> DayRows:
    # Fewer tasks do not slow the query down: it has finished, and its rows are on disk.
    parts = max(1, count // ROWS_PER_FILE)
    if time is None:
        return DayRows("", kept.coalesce(parts), count)
    rows = kept.where(time.day == F.lit(day)).coalesce(parts)
    return DayRows(f"{DAY}{day}", rows.sortWithinPartitions(time.column), count)
