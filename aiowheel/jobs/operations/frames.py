"""Reading of traces with Spark: files to checked columns. Rank 5.

Parquet is checked without a Python function, in the order in which `files` checks it in one
process. Lines of text are parsed in Python, so that both engines accept the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from aiowheel.errors import BadInputError, MissingExtraError

try:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name
except ImportError as _error:
    raise MissingExtraError("spark") from _error

from aiowheel._printable import is_unicode
from aiowheel.jobs.operations.rows import parquet_files
from aiowheel.jobs.operations.text_frames import (
    CHECKED_EVENTS,
    CHECKED_OPERATIONS,
    checked_events,
    checked_operations,
)
from aiowheel.jobs.schemas import ALL, ANY, EVENTS, OPERATIONS, Flaw
from aiowheel.jobs.spark.sources import Source, load_files, read_values
from aiowheel.jobs.spark.uris import Folder, parse_uri, spark_path
from aiowheel.jobs.spark.values import ddl, spark_type
from aiowheel.readers import LATEST_TIME, Format, Inputs
from aiowheel.readers._inputs import GZIP_MAGIC, HIDDEN, TAR_SUFFIXES
from aiowheel.rules import NEVER, NO_VALUE

#: The columns of the tables, with their types as Spark spells them.
OPERATION_TYPES: Final = {column.name: spark_type(column.type) for column in OPERATIONS}
EVENT_TYPES: Final = {column.name: spark_type(column.type) for column in EVENTS}
#: The nested vectorized reader of Spark 4 may fail ("Index 0 out of bounds for length 0") on a file
#: in which all elements of all `thresholds` are null. Set this for the query, not for the session.
LIST_READER: Final = {"spark.sql.parquet.enableNestedColumnVectorizedReader": "false"}
_WITHOUT_NULLS: Final = {"ignoreNullFields": "true"}  # also if the session's setting is another one


def read_operations(spark: SparkSession, source: Source) -> DataFrame:
    """Read a table of operations; see `LIST_READER` for queries on Parquet without thresholds.

    Returns:
        ``id``, ``keys``, ``thresholds``, ``wanted``, ``created`` and ``deadline`` as in
        `rules.Operation`, except that ``thresholds`` is null, as a whole or for a key, if any event
        meets the key; ``flaw``, or null; and ``source`` and ``raw`` for the table of rejects.
        Computing these two is expensive for Parquet, and lines without a flaw have them only in a
        stream.

    Raises:
        BadInputError: Spark cannot read a file, or a Parquet file or Delta table has other columns.
    """
    return _read(spark, source, _OPERATIONS)


def read_events(spark: SparkSession, source: Source) -> DataFrame:
    """Read a table of events.

    The arguments and extra columns are those of `read_operations`; the other columns are ``key``,
    ``time`` and ``value`` as in `rules.Event`.
    """
    return _read(spark, source, _EVENTS)


def check_operations(
    rows: DataFrame, source: Column, unread: Column | None = None, text: Column | None = None
) -> DataFrame:
    """Check rows with the columns of `OPERATION_TYPES`; the result is that of `read_operations`.

    Args:
        rows: The rows to check.
        source: The source of a row.
        unread: Whether the row could not be read; by default false.
        text: The text of the row; by default its columns as JSON.
    """
    empty_id = F.coalesce(F.col("id"), F.lit("")) == ""
    count = F.coalesce(F.size("keys"), F.lit(-1))
    mode = F.coalesce(F.col("mode"), F.lit(ANY))
    # Null if an element is null. `exists` would call back for each element; this compiles to Java.
    empty_key = F.coalesce(F.array_contains("keys", ""), F.lit(True))
    flaws = {
        # Joined by a comma, so that bytes at the end of one key and the start of the next do not
        # combine into a valid character.
        Flaw.RECORD: _is_not_utf8(unread, "id", "mode", F.array_join("keys", ",")),
        Flaw.ID: empty_id,
        Flaw.KEYS: (count <= 0) | empty_key,
        Flaw.REPEATED: F.size(F.array_distinct("keys")) != count,
        Flaw.THRESHOLDS: (F.size("thresholds") > 0) & (F.size("thresholds") != count),
        Flaw.MODE: ~mode.isin(ANY, ALL),
        Flaw.CREATED: _is_not_time("created"),
        Flaw.DEADLINE: F.col("deadline").isNotNull() & _is_not_time("deadline"),
    }
    return rows.select(
        "id",
        "keys",
        "thresholds",
        F.when(mode == ALL, count).otherwise(F.lit(1)).alias("wanted"),
        "created",
        F.coalesce(F.col("deadline"), F.lit(NEVER)).alias("deadline"),
        *_checked(flaws, OPERATION_TYPES, source, text),
    )


def check_events(
    rows: DataFrame, source: Column, unread: Column | None = None, text: Column | None = None
) -> DataFrame:
    """Check rows with the columns of `EVENT_TYPES`; see `check_operations`."""
    empty_key = F.coalesce(F.col("key"), F.lit("")) == ""
    flaws = {
        Flaw.RECORD: _is_not_utf8(unread, "key"),
        Flaw.KEY: empty_key,
        Flaw.TIME: _is_not_time("time"),
    }
    return rows.select(
        "key",
        "time",
        F.coalesce(F.col("value"), F.lit(NO_VALUE)).alias("value"),
        *_checked(flaws, EVENT_TYPES, source, text),
    )


def least_value(place: Column) -> Column:
    """Return the threshold of the key at *place* of an operation, as in `rules.Operation`."""
    return F.coalesce(F.get("thresholds", place), F.lit(NO_VALUE))


def sound(rows: DataFrame) -> DataFrame:
    """Select the rows without a flaw."""
    return rows.where(F.col("flaw").isNull())


def rejects(rows: DataFrame) -> DataFrame:
    """Select the rows with a flaw, in the columns of the table of rejects."""
    return rows.where(F.col("flaw").isNotNull()).select(
        "source", F.col("flaw").alias("reason"), "raw"
    )


class _Table(NamedTuple):
    """One of the two tables, its columns after the check, and the checks of rows and of lines."""

    name: str
    schema: pa.Schema
    checked: pa.Schema
    check: Callable[..., DataFrame]
    check_lines: Callable[..., Iterator[pa.RecordBatch]]


_OPERATIONS: Final = _Table(
    "operations", OPERATIONS, CHECKED_OPERATIONS, check_operations, checked_operations
)
_EVENTS: Final = _Table("events", EVENTS, CHECKED_EVENTS, check_events, checked_events)


def _read(spark: SparkSession, source: Source, table: _Table) -> DataFrame:
    place = parse_uri(source.uri)
    if not isinstance(place, Folder):
        rows = read_values(spark, source, table.name, table.schema)
        return table.check(rows, F.col("source"), F.col("unread"), F.col("text"))
    if source.form is not Format.PARQUET:
        keep_raw = source.per_batch is not None
        check_lines = partial(table.check_lines, form=source.form, keep_raw=keep_raw)
        return _lines(spark, source, place).mapInArrow(check_lines, ddl(table.checked))
    rows = load_files(spark, source, place, ddl(table.schema), _parquet_in(source, place, table))
    # Not `_metadata.file_path`: Spark would compute it for every row, even if unused.
    return table.check(rows.withColumn("url", F.input_file_name()), _path_of("url"))


def _parquet_in(source: Source, place: Folder, table: _Table) -> list[str] | None:
    """Check the files and return those to read; None where Spark lists the files itself."""
    if source.per_batch is not None or place.local is None:
        return None
    files = parquet_files(place.local, table.schema)
    for file in files:
        _refuse_name(file)
    return [spark_path(file) for file in files]


def _lines(spark: SparkSession, source: Source, place: Folder) -> DataFrame:
    """Return the lines of text files, in the columns of `checked_operations`."""
    files = None
    if source.per_batch is None and place.local is not None:
        paths = Inputs([str(place.local)]).paths
        for file in paths:
            _refuse_name(file)
            _refuse_other_compression(file)
        files = [spark_path(file) for file in paths]
    lines = load_files(spark, source, place, None, files)
    return lines.select(
        F.input_file_name().alias("source"),
        F.input_file_block_start().alias("start"),
        F.col("value").cast("binary").alias("line"),
    )


def _refuse_name(file: Path) -> None:
    """Raise for a name that one process could open, but that Spark skips or cannot be given."""
    if file.name.startswith(HIDDEN):
        raise BadInputError(f"{file}: Spark skips names with a leading . or _: rename the file")
    if not is_unicode(str(file.absolute())):
        raise BadInputError(f"{file}: Spark reads no path that is not UTF-8: rename it")


def _refuse_other_compression(file: Path) -> None:
    """Raise for compressed files that one process could unpack but Spark would misread."""
    if file.name.endswith(TAR_SUFFIXES):
        raise BadInputError(f"{file}: Spark reads no archives: unpack it, or use --engine wheel")
    try:
        with file.open("rb") as opened:
            zipped = opened.read(2) == GZIP_MAGIC
    except OSError as error:
        raise BadInputError(f"{file}: {error.strerror}") from error
    if zipped and file.suffix != ".gz":
        raise BadInputError(f"the name of a gzipped file must end in .gz for Spark, got {file}")


def _is_not_utf8(unread: Column | None, *texts: Column | str) -> Column:
    flawed = F.lit(False) if unread is None else unread
    for text in texts:
        flawed |= ~F.coalesce(F.is_valid_utf8(text), F.lit(True))
    return flawed


def _is_not_time(column: str) -> Column:
    return ~F.coalesce(F.col(column).between(0, LATEST_TIME), F.lit(False))


def _checked(
    flaws: Mapping[Flaw, Column], types: Mapping[str, str], source: Column, text: Column | None
) -> list[Column]:
    cases = [
        F.when(F.coalesce(holds, F.lit(False)), F.lit(flaw.value)) for flaw, holds in flaws.items()
    ]
    valid = [_valid(name, kind).alias(name) for name, kind in types.items()]
    return [
        F.coalesce(*cases).alias("flaw"),
        source.alias("source"),
        (F.to_json(F.struct(*valid), _WITHOUT_NULLS) if text is None else text).alias("raw"),
    ]


def _path_of(url: str) -> Column:
    plus = F.replace(F.col(url), F.lit("+"), F.lit("%2B"))  # url_decode would make it a space
    return F.regexp_replace(F.url_decode(plus), "^file:/+", "/")


def _valid(column: str, kind: str) -> Column:
    if kind == "string":
        return F.make_valid_utf8(column)
    return F.transform(column, F.make_valid_utf8) if kind == "array<string>" else F.col(column)
