"""Traces as Spark reads them: files to checked columns. Rank 5.

Parquet is checked without a Python function, flaw by flaw as `files` does for one process. Lines of
text are parsed by Python, so that both engines take the same ones for rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.errors import BadInputError
from aiowheel.jobs.operations.rows import parquet_files
from aiowheel.jobs.operations.schemas import ALL, ANY, EVENTS, LATEST, OPERATIONS, Flaw
from aiowheel.jobs.operations.text_frames import (
    EVENT_DDL,
    OPERATION_DDL,
    checked_events,
    checked_operations,
)
from aiowheel.jobs.spark.path import spark_path
from aiowheel.readers import Format, Inputs
from aiowheel.rules import NEVER, NO_VALUE

#: The columns of the tables as Spark writes their types.
OPERATION_TYPES: Final = {
    "id": "string",
    "keys": "array<string>",
    "thresholds": "array<bigint>",
    "mode": "string",
    "created": "bigint",
    "deadline": "bigint",
}
EVENT_TYPES: Final = {"key": "string", "time": "bigint", "value": "bigint"}
_LONGEST_AGE: Final = "36500d"  # Spark forgets, in silence, files a week older than the newest
_FILES_ONLY: Final = {"recursiveFileLookup": "true"}  # no columns out of names like day=1
_GZIP_MAGIC: Final = b"\x1f\x8b"

_Check = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def read_operations(
    spark: SparkSession, path: Path, form: Format, *, files_per_batch: int = 0
) -> DataFrame:
    """Read a file or folder of operations.

    Args:
        spark: The session.
        path: Where they are.
        form: Parquet, ndjson or csv.
        files_per_batch: Stream what arrives in the folder, at most so many files a micro-batch;
            0 reads what lies there now.

    Returns:
        ``id``, ``keys``, ``thresholds``, ``wanted``, ``created`` and ``deadline`` as in
        `rules.Operation`, but for ``thresholds``: null, as a whole or for a key, if any event will
        do; ``flaw``, or null; ``source`` and ``raw`` for a table of rejects, which of Parquet cost
        much where they are used, and of lines without a flaw only a stream has.

    Raises:
        BadInputError: A file is not as Spark reads it, or a Parquet file has other columns.
    """
    if form is not Format.PARQUET:
        check = partial(checked_operations, form=form, keep_raw=files_per_batch > 0)
        return _read_text(spark, path, files_per_batch).mapInArrow(check, OPERATION_DDL)
    # That reader of Spark 4 fails on a file in which all elements of all `thresholds` are null:
    # "Index 0 out of bounds for length 0".
    spark.conf.set("spark.sql.parquet.enableNestedColumnVectorizedReader", "false")
    rows = _read_parquet(spark, path, OPERATIONS, OPERATION_TYPES, files_per_batch)
    return check_operations(rows, _path_of("url"))


def read_events(
    spark: SparkSession, path: Path, form: Format, *, files_per_batch: int = 0
) -> DataFrame:
    """Read a file or folder of events.

    Args and extra columns as of `read_operations`; else ``key``, ``time`` and ``value`` as in
    `rules.Event`.
    """
    if form is not Format.PARQUET:
        check = partial(checked_events, form=form, keep_raw=files_per_batch > 0)
        return _read_text(spark, path, files_per_batch).mapInArrow(check, EVENT_DDL)
    rows = _read_parquet(spark, path, EVENTS, EVENT_TYPES, files_per_batch)
    return check_events(rows, _path_of("url"))


def check_operations(rows: DataFrame, source: Column) -> DataFrame:
    """Check rows with the columns of `OPERATION_TYPES`; columns as of `read_operations`.

    Args:
        rows: What to check.
        source: Where a row comes from.
    """
    empty_id = F.coalesce(F.col("id"), F.lit("")) == ""
    count = F.coalesce(F.size("keys"), F.lit(-1))
    mode = F.coalesce(F.col("mode"), F.lit(ANY))
    # Null if one is null. Spark makes Java of this, and calls back for each element of `exists`.
    empty_key = F.coalesce(F.array_contains("keys", ""), F.lit(True))
    flaws = {
        # Joined by a comma, so that the end of a key and the begin of the next make no character.
        Flaw.RECORD: _no_utf8("id", "mode", F.array_join("keys", ",")),
        Flaw.ID: empty_id,
        Flaw.KEYS: (count <= 0) | empty_key,
        Flaw.REPEATED: F.size(F.array_distinct("keys")) != count,
        Flaw.THRESHOLDS: (F.size("thresholds") > 0) & (F.size("thresholds") != count),
        Flaw.MODE: ~mode.isin(ANY, ALL),
        Flaw.CREATED: _no_time("created"),
        Flaw.DEADLINE: F.col("deadline").isNotNull() & _no_time("deadline"),
    }
    return rows.select(
        "id",
        "keys",
        "thresholds",
        F.when(mode == ALL, count).otherwise(F.lit(1)).alias("wanted"),
        "created",
        F.coalesce(F.col("deadline"), F.lit(NEVER)).alias("deadline"),
        *_checked(flaws, OPERATION_TYPES, source),
    )


def check_events(rows: DataFrame, source: Column) -> DataFrame:
    """Check rows with the columns of `EVENT_TYPES`, as `check_operations` does."""
    empty_key = F.coalesce(F.col("key"), F.lit("")) == ""
    flaws = {
        Flaw.RECORD: _no_utf8("key"),
        Flaw.KEY: empty_key,
        Flaw.TIME: _no_time("time"),
    }
    return rows.select(
        "key",
        "time",
        F.coalesce(F.col("value"), F.lit(NO_VALUE)).alias("value"),
        *_checked(flaws, EVENT_TYPES, source),
    )


def least_value(place: Column) -> Column:
    """The threshold of the key at *place* of an operation, as in `rules.Operation`."""
    return F.coalesce(F.get("thresholds", place), F.lit(NO_VALUE))


def sound(rows: DataFrame) -> DataFrame:
    """The rows that can be used."""
    return rows.where(F.col("flaw").isNull())


def rejects(rows: DataFrame) -> DataFrame:
    """The rows that cannot be used, as the table of rejects has them."""
    return rows.where(F.col("flaw").isNotNull()).select(
        "source", F.col("flaw").alias("reason"), "raw"
    )


def _read_parquet(
    spark: SparkSession,
    path: Path,
    table: pa.Schema,
    types: Mapping[str, str],
    files_per_batch: int,
) -> DataFrame:
    ddl = ", ".join(f"{name} {kind}" for name, kind in types.items())
    if files_per_batch:
        stream = spark.readStream.schema(ddl).options(**_arriving(files_per_batch))
        return _with_url(stream.parquet(spark_path(path)))
    files = parquet_files(path, table)
    if not files:
        return _with_url(spark.createDataFrame([], ddl))
    reader = spark.read.schema(ddl).options(**_FILES_ONLY)
    return _with_url(reader.parquet(*map(spark_path, files)))


def _with_url(rows: DataFrame) -> DataFrame:
    # Not `_metadata.file_path`: Spark would make that up for every row, asked for or not.
    return rows.withColumn("url", F.input_file_name())


def _read_text(spark: SparkSession, path: Path, files_per_batch: int) -> DataFrame:
    """The lines of text files, as `checked_operations` wants them."""
    if files_per_batch:
        lines = spark.readStream.options(**_arriving(files_per_batch)).text(spark_path(path))
    else:
        files = Inputs([str(path)]).paths
        for file in files:
            _refuse_other_packing(file)
        reader = spark.read.options(**_FILES_ONLY)
        lines = reader.text([spark_path(file) for file in files])
    return lines.select(
        F.input_file_name().alias("source"),
        F.input_file_block_start().alias("start"),
        F.col("value").cast("binary").alias("line"),
    )


def _arriving(files_per_batch: int) -> Mapping[str, str]:
    # Without `_FILES_ONLY` the last phase of a stream fails: on its start Spark looks once more at
    # the files of the last micro-batch, and finds them outside of the empty folder that it reads.
    options = {"maxFilesPerTrigger": str(files_per_batch), "maxFileAge": _LONGEST_AGE}
    return {**options, **_FILES_ONLY}


def _refuse_other_packing(file: Path) -> None:
    """Refuse what one process could unpack, and Spark, which goes by the name, would misread."""
    if file.name.endswith((".tar.gz", ".tgz")):
        raise BadInputError(f"{file}: Spark reads no archives: unpack it, or use --engine wheel")
    try:
        with file.open("rb") as opened:
            zipped = opened.read(2) == _GZIP_MAGIC
    except OSError as error:
        raise BadInputError(f"{file}: {error.strerror}") from error
    if zipped and file.suffix != ".gz":
        raise BadInputError(f"{file}: is gzipped: Spark wants a name that ends in .gz")


def _no_utf8(*texts: Column | str) -> Column:
    flawed = F.lit(False)
    for text in texts:
        flawed |= ~F.coalesce(F.is_valid_utf8(text), F.lit(True))
    return flawed


def _no_time(column: str) -> Column:
    return ~F.coalesce(F.col(column).between(0, LATEST), F.lit(False))


def _checked(
    flaws: Mapping[Flaw, Column], types: Mapping[str, str], source: Column
) -> list[Column]:
    cases = [
        F.when(F.coalesce(holds, F.lit(False)), F.lit(flaw.value)) for flaw, holds in flaws.items()
    ]
    valid = [_valid(name, kind).alias(name) for name, kind in types.items()]
    return [
        F.coalesce(*cases).alias("flaw"),
        source.alias("source"),
        F.to_json(F.struct(*valid)).alias("raw"),
    ]


def _path_of(url: str) -> Column:
    plus = F.replace(F.col(url), F.lit("+"), F.lit("%2B"))  # else it becomes a blank
    return F.regexp_replace(F.url_decode(plus), "^file:/+", "/")


def _valid(column: str, kind: str) -> Column:
    if kind == "string":
        return F.make_valid_utf8(column)
    return F.transform(column, F.make_valid_utf8) if kind == "array<string>" else F.col(column)
