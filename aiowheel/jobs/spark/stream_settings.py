"""The release and the settings of Spark on which the results of streams depend. Rank 5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aiowheel.errors import BadInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The state store that `processor` needs; sessions of this package have it.
STATE_STORE: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
#: For streams of two tables whose state is in `processor`.
STATE: Final = {
    **STATE_STORE,
    # The newer of two watermarks would make rows of the slower table late.
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
}
#: For streams that end: the flush moves the watermark, and only a further micro-batch uses it.
ENDING: Final = STATE | {"spark.sql.streaming.noDataMicroBatches.enabled": "true"}


#: Releases that read only a part of a state above 64 KiB (SPARK-53870); the stream then fails with
#: "invalid pickle opcode".
_PARTIAL_READS: Final = ("4.0.0", "4.0.1")


def check_session(spark: SparkSession, needed: Mapping[str, str]) -> None:
    """Raise if the session is of an unfit release or has other settings than *needed*.

    Raises:
        BadInputError: The text names the release or the setting, its value and the legal one.
    """
    if spark.version in _PARTIAL_READS:
        raise BadInputError(
            f"Spark must be 4.0.2 or later for streams, got {spark.version}, which reads only a "
            "part of a large state"
        )
    for name, value in needed.items():
        got = str(spark.conf.get(name))
        if got.lower() != value.lower():  # Spark's own error comes later, or rows are lost
            raise BadInputError(f"{name} must be {value} for streams, got {got}")
