"""The files of a micro-batch: few, by day, and sorted by time. Rank 5.

Each task of a stateful query would write a file of its own, even for a single row.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.jobs.operations.schemas import per_second
from aiowheel.readers import Unit

DAY: Final = "day"  #: the column of the date, by which a writer divides the rows

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
        units = F.lit(_DAY_SECONDS * per_second(self.unit)).cast("bigint")
        days = F.call_function("div", F.col(self.column), units)
        return F.date_from_unix_date(F.least(days, F.lit(_LAST_DAY)).cast("int"))


@contextmanager
def in_few_parts(frame: DataFrame, time: RowTime | None) -> Generator[DataFrame]:
    """Yield *frame* in as few parts as Spark's target for the size of a part allows.

    The target is the setting ``spark.sql.adaptive.advisoryPartitionSizeInBytes``.

    Args:
        frame: The rows of a micro-batch.
        time: The time of the rows, which get a column `DAY`, and are sorted by time within each
            part; None for rows without a time.

    Cost: a shuffle of the rows.
    """
    conf = frame.sparkSession.conf
    before = {name: str(conf.get(name)) for name in _BY_SIZE}
    for name, value in _BY_SIZE.items():
        conf.set(name, value)
    try:
        if time is None:
            yield frame.hint("rebalance")
        else:
            rows = frame.withColumn(DAY, time.day).hint("rebalance", DAY)
            yield rows.sortWithinPartitions(DAY, time.column)
    finally:
        for name, value in before.items():
            conf.set(name, value)
