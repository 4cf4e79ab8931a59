"""Touches in Parquet files, read by Spark with the rules of the readers. Rank 5."""

import contextlib
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name
from pyspark.sql.types import LongType, StringType, StructField, StructType

from aiowheel._printable import is_unicode
from aiowheel.jobs.idle.batch import FoundIdle, column_named
from aiowheel.jobs.spark.sources import NO_FILE_SKIPPED
from aiowheel.jobs.spark.uris import file_name, spark_file
from aiowheel.readers import Format, Piece, Reject, Tally, TimedRows, raw_text
from aiowheel.readers._inputs import HIDDEN

# The error of Spark 4.0 and later names the file that could not be read.
_UNREADABLE = re.compile(
    r"FAILED_READ_FILE\S* Encountered error while reading file (\S+?)\.(?:\s|$)"
)
_ODD = re.compile(r"[*?\[\]{}\\:]")  # glob characters; and Spark cannot read a name with a colon


def key_that_spark_reads(paths: Sequence[Path], names: Sequence[str], time: str) -> str | None:
    """Return the key column if Spark can read the files; None if the readers must read them.

    Spark can read them if all files are Parquet with the same key column and times of one integer
    type. The readers accept more types and report errors in a file.

    Args:
        paths: The files.
        names: Possible names of the key column; the first one that the files have is used.
        time: Name of the time column.
    """
    found: set[tuple[str, pa.DataType, pa.DataType]] = set()
    for path in paths:
        place = path.resolve()
        if path.suffix != ".parquet" or place.name.startswith(HIDDEN):
            return None
        if _ODD.search(str(place)) or not is_unicode(str(place)):
            return None
        try:
            schema = pq.read_schema(path)
        except (OSError, pa.ArrowException):
            return None
        key = next((name for name in names if name in schema.names), None)
        lower = {name.lower() for name in schema.names}  # Spark's column names ignore case
        if key is None or time not in schema.names or len(lower) < len(schema.names):
            return None
        if "_metadata" in lower:  # would hide Spark's own column of that name
            return None
        kinds = schema.field(key).type, schema.field(time).type
        if not (pa.types.is_string(kinds[0]) or pa.types.is_signed_integer(kinds[0])):
            return None
        if not pa.types.is_signed_integer(kinds[1]):
            return None
        found.add((key, *kinds))
    # Spark reads all files with the schema of one.
    return found.pop()[0] if len(found) == 1 else None


@dataclass(frozen=True)
class ParquetTouches:
    """The rows of Parquet files, good and bad.

    Attributes:
        table: All rows: key, t, reason (null for a good row), and the row's file and line.
        sizes: Number of rows of every file, by the name that the user gave.
        names: The user's name of each file, by the name that Spark uses.
    """

    table: DataFrame
    sizes: Mapping[str, int]
    names: Mapping[str, str]

    @classmethod
    def of(cls, spark: SparkSession, paths: Sequence[Path], key: str, rows: TimedRows) -> Self:
        """Plan reading files by the rules of *rows*; *key* is that of `key_that_spark_reads`."""
        reader = spark.read.options(**NO_FILE_SKIPPED).schema(_columns(paths[0], key, rows.time))
        table = reader.parquet(*(spark_file(path.resolve()) for path in paths)).select(
            column_named(key).cast("string").alias("key"),
            column_named(rows.time).cast("bigint").alias("t"),
            F.col("_metadata.file_path").alias("source"),
            (F.col("_metadata.row_index") + 1).alias("line"),
        )
        return cls(
            table.withColumn("reason", flaw_of_touch(rows.earliest, F.lit(rows.latest))),
            {str(path): pq.read_metadata(path).num_rows for path in paths},
            {str(path.resolve()): str(path) for path in paths},
        )

    @property
    def size(self) -> int:
        """The total number of rows."""
        return sum(self.sizes.values())

    @property
    def rows(self) -> DataFrame:
        """``key, t`` of the good rows."""
        return self.table.where(F.col("reason").isNull()).select("key", "t")

    def found(self, idle: FoundIdle) -> Iterator[Reject | Tally]:
        """Yield the bad rows and the tally of each file, in file order.

        Reads the files again if *idle* was found in fewer rows than they have.
        """
        rejects = self._rejects() if idle.count_rows() < self.size else iter(())
        reject = next(rejects, None)
        for source, size in self.sizes.items():
            accepted = size
            while reject is not None and reject.source == source:
                yield reject
                accepted -= 1
                reject = next(rejects, None)
            yield Tally(source, Format.PARQUET, accepted, ends_source=True)

    @contextlib.contextmanager
    def reader_errors(self, rows: TimedRows) -> Generator[None]:
        """If Spark fails to read a file inside the block, raise the error of the readers instead.

        Raises:
            BadInputError: Neither Spark nor the reader could read a file.
        """
        try:
            yield
        except Exception as error:
            match = _UNREADABLE.search(str(error))
            file = file_name(match[1]) if match else ""
            if file in self.names:
                piece = Piece(self.names[file], Path(file), Format.PARQUET)
                for _ in rows.by_the_same_rules(piece, None).batches():
                    pass
            raise

    def _rejects(self) -> Iterator[Reject]:
        bad = self.table.where(F.col("reason").isNotNull())
        found = [row["source"] for row in bad.select("source").distinct().collect()]
        order = {name: place for place, name in enumerate(self.sizes)}
        found.sort(key=lambda source: order[self._name_of(source)])
        place = F.array_position(F.array(*map(F.lit, found)), F.col("source"))
        # As bytes, because a key may not be valid UTF-8.
        rows = bad.orderBy(place, "line").withColumn("key", F.col("key").cast("binary"))
        for row in rows.toLocalIterator():
            key = (row["key"] or b"").decode(errors="surrogateescape")
            raw = raw_text([key, "" if row["t"] is None else str(row["t"])])
            yield Reject(self._name_of(row["source"]), row["line"], row["reason"], raw, used=False)

    def _name_of(self, source: str) -> str:
        return self.names[file_name(source)]


def _columns(path: Path, key: str, time: str) -> StructType:
    """Return the Spark schema of the two columns; other columns may have types unknown to Spark."""
    is_text = pa.types.is_string(pq.read_schema(path).field(key).type)
    kinds = {key: StringType() if is_text else LongType(), time: LongType()}
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def flaw_of_touch(earliest: int, latest: Column) -> Column:
    """Return the reason why ``key`` or ``t`` is rejected, worded as by the readers, or null."""
    t = F.col("t")
    written = F.concat(F.lit("time '"), F.coalesce(t.cast("string"), F.lit("")), F.lit("' is "))
    return (
        F.when(F.col("key").isNull() | (F.col("key") == ""), F.lit("the key is empty"))
        .when(~F.is_valid_utf8("key"), F.lit("the key is not UTF-8"))
        .when(t.isNull() | (t < 0), F.concat(written, F.lit("not a whole number >= 0")))
        .when(t > latest, F.concat(written, F.lit("beyond "), latest.cast("string")))
        .when(t < F.lit(earliest), F.concat(written, F.lit(f"before {earliest}")))
    )
