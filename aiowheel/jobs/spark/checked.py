"""Check of the DataFrames that callers pass. Rank 5."""

from __future__ import annotations

from pyspark.sql import DataFrame


def check_frame(name: str, frame: object) -> None:
    """Refuse what is not a DataFrame of Spark, such as one of pandas, or of pandas on Spark.

    Raises:
        TypeError: *frame* is something else. The text has only its type, because the `repr` of a
            DataFrame of pandas on Spark runs a query.
    """
    if not isinstance(frame, DataFrame):
        kind = type(frame)
        raise TypeError(
            f"{name} must be a pyspark.sql.DataFrame, got a {kind.__module__}.{kind.__qualname__}"
        )
