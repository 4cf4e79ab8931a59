"""The settings of Spark on which the results of streams depend. Rank 5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aiowheel.errors import BadInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: For streams of two tables whose state is in `processor`.
STATE: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # The newer of two watermarks would make rows of the slower table late.
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
}
#: For streams that end: the flush moves the watermark, and only a further micro-batch uses it.
ENDING: Final = STATE | {"spark.sql.streaming.noDataMicroBatches.enabled": "true"}


def check_settings(spark: SparkSession, needed: Mapping[str, str]) -> None:
    """Raise if the session has other settings than *needed*.

    Raises:
        BadInputError: The text names the setting, its value and the legal one.
    """
    for name, value in needed.items():
        got = str(spark.conf.get(name))
        if got.lower() != value.lower():  # Spark's own error comes later, or rows are lost
            raise BadInputError(f"{name} must be {value} for streams, got {got}")
