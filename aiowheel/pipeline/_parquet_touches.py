"""Touches in Parquet, read by Spark itself, by the rules of the readers. Rank 5."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.readers import Reject, TimedRows


def spark_reads(paths: Sequence[Path], key: str, time: str) -> bool:
    """Whether all files are Parquet with text or whole numbers as keys, whole numbers as times.

    Everything else is for the reader, which knows more types and tells what is wrong with a file.
    """
    for path in paths:
        if path.suffix != ".parquet":
            return False
        try:
            schema = pq.read_schema(path)
        except (OSError, pa.ArrowException):
            return False
        if not {key, time} <= set(schema.names):
            return False
        kinds = schema.field(key).type, schema.field(time).type
        if not (pa.types.is_string(kinds[0]) or pa.types.is_signed_integer(kinds[0])):
            return False
        if not pa.types.is_signed_integer(kinds[1]):
            return False
    return True


@dataclass(frozen=True)
class ParquetTouches:
    """The rows of Parquet files, good and bad.

    Attributes:
        table: All rows: key, t, reason (null for a good row), and where the row stands.
        counts: Filled by the first action over `good`.
    """

    table: DataFrame
    counts: Observation

    @classmethod
    def of(cls, spark: SparkSession, paths: Sequence[Path], rows: TimedRows) -> Self:
        """Plan the reading of files of which `spark_reads` is true, by the rules of *rows*."""
        table = spark.read.parquet(*(str(path.resolve()) for path in paths)).select(
            F.col(f"`{rows.key}`").cast("string").alias("key"),
            F.col(f"`{rows.time}`").cast("bigint").alias("t"),
            F.col("_metadata.file_path").alias("source"),
            (F.col("_metadata.row_index") + 1).alias("line"),
        )
        return cls(table.withColumn("reason", _reason(rows.earliest, rows.latest)), Observation())

    def good(self) -> DataFrame:
        """Select ``key, t`` of the good rows; an action over it counts all rows on its way."""
        bad = F.col("reason").isNotNull()
        return (
            self.table.select("key", "t", "reason")  # Spark prunes no column behind `observe`
            .observe(
                self.counts, F.count(F.lit(1)).alias("rows"), F.count_if(bad).alias("rejected")
            )
            .where(~bad)
            .select("key", "t")
        )

    @property
    def accepted(self) -> int:
        """How many rows are good; after an action over `good`."""
        return int(self.counts.get["rows"] - self.counts.get["rejected"])

    def rejects(self) -> Iterator[Reject]:
        """Walk over the bad rows; after an action over `good`, which counted them."""
        if not self.counts.get["rejected"]:
            return
        bad = self.table.where(F.col("reason").isNotNull())
        for row in bad.toLocalIterator():
            key, t = ("" if value is None else value for value in (row["key"], row["t"]))
            source = unquote(urlparse(row["source"]).path)
            yield Reject(source, row["line"], row["reason"], f"{key},{t}", used=False)


def _reason(earliest: int, latest: int) -> Column:
    """The first thing wrong with a row, in the words of the readers."""
    t = F.col("t")
    written = F.concat(F.lit("time '"), F.coalesce(t.cast("string"), F.lit("")), F.lit("' is "))
    return (
        F.when(F.col("key").isNull() | (F.col("key") == ""), F.lit("the key is empty"))
        .when(t.isNull() | (t < 0), F.concat(written, F.lit("not a whole number >= 0")))
        .when(t > F.lit(latest), F.concat(written, F.lit(f"beyond {latest}")))
        .when(t < F.lit(earliest), F.concat(written, F.lit(f"before {earliest}")))
    )
