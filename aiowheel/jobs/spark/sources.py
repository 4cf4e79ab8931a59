"""Tables of any source as DataFrames, batch or stream. Rank 5.

Each row has the columns of its table, and three more:

- ``source``: the file, or topic, partition and offset, of the row,
- ``reason``: null, or the reason why it is not a valid row of the table,
- ``raw``: null, or the text of an invalid row, in valid UTF-8.

No row is left out: a row that cannot be read has a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from aiowheel.errors import BadInputError, MissingExtraError

try:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name
except ImportError as _error:
    raise MissingExtraError("spark") from _error

from aiowheel.jobs.schemas import TOUCHES
from aiowheel.jobs.spark.uris import Folder, Place, Table, Topic, parse_uri
from aiowheel.jobs.spark.values import (
    ValueFormat,
    ddl,
    json_of,
    parse_avro,
    parse_json,
    spark_type,
    with_reasons,
)
from aiowheel.readers import Format

#: Spark silently ignores files a week older than the newest one. A thousand years exceed the times
#: that file systems store, such as a wrong one in the year 2200.
_LONGEST_AGE: Final = "365000d"
#: A cluster's settings may let Spark skip damaged and missing files, whose rows would be lost.
NO_FILE_SKIPPED: Final = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
#: Otherwise Spark ignores files in subfolders, or derives columns from the subfolders' names.
_WHOLE_FOLDER: Final = {"recursiveFileLookup": "true", **NO_FILE_SKIPPED}
_BYTES: Final = "ISO-8859-1"
_NUMBER: Final = r"^-?[0-9]{1,19}$"
#: The columns of Spark's source ``binaryFile``. A setting may make ``timestamp`` a local time.
BINARY_FILES_DDL: Final = (
    "path string, modificationTime timestamp_ltz, length bigint, content binary"
)
_FILES: Final = (Format.PARQUET, Format.NDJSON, Format.CSV)


@dataclass(frozen=True, slots=True)
class Source:
    """A source of rows and its format.

    Attributes:
        uri: The URI of a folder, a topic or a Delta table.
        form: The format of files: Parquet, ndjson or csv.
        value_form: The format of a topic's values: JSON or Avro.
        per_batch: None reads the present contents. A number makes a stream, with at most so many
            files, or records of a topic, in a micro-batch.
        delete: Whether a stream deletes each file of a folder after its micro-batch.
        options: Additional options for Spark's reader. Those that begin with ``kafka.``, such as
            ``kafka.security.protocol``, are for a topic, and have no effect elsewhere.
    """

    uri: str
    form: Format = Format.PARQUET
    value_form: ValueFormat = ValueFormat.JSON
    per_batch: int | None = None
    delete: bool = False
    options: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @classmethod
    def of_stream(
        cls,
        uri: str,
        form: Format,
        files: int,
        records: int,
        *,
        delete: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> Self:
        """Return the source of a stream.

        Args:
            uri: The URI of a folder, a topic or a Delta table.
            form: The format of files.
            files: The maximum number of files of a folder or a Delta table in a micro-batch.
            records: The maximum number of records of a topic in a micro-batch.
            delete: Whether to delete each file of a folder after its micro-batch.
            options: As the attribute.
        """
        most = records if isinstance(parse_uri(uri), Topic) else files
        return cls(uri, form, per_batch=most, delete=delete, options=dict(options or {}))

    def __post_init__(self) -> None:
        """Check the format, the number, and whether the files can be deleted."""
        if self.form not in _FILES:
            raise BadInputError(f"format must be {', '.join(_FILES)}, got {self.form}")
        if self.per_batch is not None and self.per_batch < 1:
            raise BadInputError(f"per_batch must be 1 or more, got {self.per_batch}")
        if self.delete and not isinstance(parse_uri(self.uri), Folder):
            raise BadInputError(f"{self.uri}: is no folder, whose files alone can be deleted")


def read_touches(spark: SparkSession, source: Source, flaw: Column | None = None) -> DataFrame:
    """Read ``key: string, t: bigint``, ``source``, ``reason`` and ``raw``.

    Args:
        spark: The session.
        source: The source of the rows.
        flaw: A column expression of ``key`` and ``t``: the reason to reject a readable row, or
            null.

    Raises:
        BadInputError: The URI or the format is invalid, or a Delta table has other columns.
    """
    place = parse_uri(source.uri)
    if isinstance(place, Folder):
        return with_reasons(_read_files(spark, source, place), TOUCHES, flaw)
    return with_reasons(read_values(spark, source, "touches", TOUCHES), TOUCHES, flaw)


def readable(rows: DataFrame) -> DataFrame:
    """Select the rows without a reason, in the columns of their table."""
    return rows.where(F.col("reason").isNull()).drop("source", "reason", "raw")


def unreadable(rows: DataFrame) -> DataFrame:
    """Select the rows with a reason: ``source``, ``reason``, ``raw``."""
    return rows.where(F.col("reason").isNotNull()).select("source", "reason", "raw")


def read_values(spark: SparkSession, source: Source, table: str, schema: pa.Schema) -> DataFrame:
    """Read a topic or a Delta table.

    Returns:
        The columns of *schema*; ``source``; ``unread``, whether a value could not be read; and
        ``text``: that value, or a row of a Delta table as JSON.

    Raises:
        BadInputError: The URI is invalid, or a Delta table has other columns.
    """
    place = parse_uri(source.uri)
    if isinstance(place, Topic):
        rows = _records(_load(spark, source, place, "kafka", _kafka_options(source, place)))
        is_avro = source.value_form is ValueFormat.AVRO
        return parse_avro(rows, table) if is_avro else parse_json(rows, schema)
    rows = _typed_rows(_load(spark, source, place, "delta", _file_options(source)), schema)
    _check_columns(rows, schema, source.uri)
    return rows


def load_files(
    spark: SparkSession,
    source: Source,
    folder: Folder,
    columns: str | None,
    files: list[str] | None = None,
) -> DataFrame:
    """Load Parquet with *columns*, or lines of text as ``value``.

    Args:
        spark: The session.
        source: The source of the files.
        folder: The folder of the files.
        columns: The Spark schema; None for text.
        files: The files to read, in the form of `spark_path`; None reads all in *folder*.
    """
    if files == []:
        return spark.createDataFrame([], columns or "value string")
    form = "text" if columns is None else "parquet"
    return _load(spark, source, folder, form, _folder_options(source), columns, files)


def _load(
    spark: SparkSession,
    source: Source,
    place: Place,
    form: str,
    options: Mapping[str, str],
    schema: str | None = None,
    files: list[str] | None = None,
) -> DataFrame:
    reader: Any = spark.read if source.per_batch is None else spark.readStream
    theirs = source.options
    if not isinstance(place, Topic):  # Spark would pass them on to the file system
        theirs = {name: value for name, value in theirs.items() if not name.startswith("kafka.")}
    reader = reader.format(form).options(**{**options, **theirs})
    if schema is not None:
        reader = reader.schema(schema)
    if isinstance(place, Topic):
        loaded: DataFrame = reader.load()
    elif isinstance(place, Table):  # Spark does not read its path as a pattern
        loaded = reader.load(place.folder.for_spark)
    else:
        loaded = reader.load(place.pattern if files is None else files)
    return loaded


def _kafka_options(source: Source, topic: Topic) -> dict[str, str]:
    options = {
        "kafka.bootstrap.servers": topic.servers,
        "subscribe": topic.name,
        "startingOffsets": "earliest",  # only without a checkpoint, which has its own offsets
        "failOnDataLoss": "true",
        "kafka.isolation.level": "read_committed",  # skips records of aborted transactions
    }
    if source.per_batch is not None:
        options["maxOffsetsPerTrigger"] = str(source.per_batch)
    return options


def _records(values: DataFrame) -> DataFrame:
    place = (F.col("topic"), F.lit("/"), F.col("partition"), F.lit("@"), F.col("offset"))
    return values.select("value", F.concat(*place).alias("source"))


def _file_options(source: Source) -> dict[str, str]:
    return {} if source.per_batch is None else {"maxFilesPerTrigger": str(source.per_batch)}


def _folder_options(source: Source) -> dict[str, str]:
    if source.per_batch is None:
        return _WHOLE_FOLDER
    return watch_options(source.per_batch, delete=source.delete)


def watch_options(files: int, *, delete: bool) -> dict[str, str]:
    """Return options of Spark's readers for a folder where files arrive.

    Args:
        files: The maximum number of files in a micro-batch.
        delete: Whether each file is deleted after its micro-batch, when the next one begins.
    """
    options = _WHOLE_FOLDER | {"maxFilesPerTrigger": str(files), "maxFileAge": _LONGEST_AGE}
    return options | {"cleanSource": "delete"} if delete else options


def _read_files(spark: SparkSession, source: Source, folder: Folder) -> DataFrame:
    if source.form is Format.PARQUET:
        return _typed_rows(load_files(spark, source, folder, ddl(TOUCHES)), TOUCHES)
    if source.form is Format.NDJSON:
        lines = load_files(spark, source, folder, None)
        lines = lines.where(F.trim("value") != "").withColumn("source", F.input_file_name())
        return parse_json(lines, TOUCHES)
    return _read_csv(spark, source, folder)


def _typed_rows(rows: DataFrame, schema: pa.Schema) -> DataFrame:
    """Convert rows of typed files; their text is computed only if a query uses it."""
    return rows.withColumns(
        {
            "source": F.input_file_name(),
            "unread": F.lit(False),
            "text": json_of([name for name in schema.names if name in rows.columns]),
        }
    )


def _check_columns(rows: DataFrame, schema: pa.Schema, uri: str) -> None:
    have = dict(rows.dtypes)
    for column in schema:
        wanted = spark_type(column.type)
        if have.get(column.name) != wanted:
            got = have.get(column.name, "no such column")
            raise BadInputError(f"{uri}: {column.name} must be {wanted}, got {got}")


def _read_csv(spark: SparkSession, source: Source, folder: Folder) -> DataFrame:
    csv = {
        **_folder_options(source),
        "header": "true",
        "escape": '"',
        "enforceSchema": "false",  # columns are matched by the header, or the file is refused
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": "_broken",
        # One character for each byte. As UTF-8, Spark would replace invalid bytes, so that two
        # different keys could become equal.
        "encoding": _BYTES,
    }
    rows = _load(spark, source, folder, "csv", csv, "key string, t string, _broken string")
    rows = rows.withColumns(
        {name: F.encode(name, _BYTES).cast("string") for name in ("key", "t", "_broken")}
    )
    is_text = F.is_valid_utf8(F.coalesce(F.col("key"), F.lit("")))
    text = F.coalesce(F.col("_broken"), F.to_csv(F.struct("key", "t")))
    key, t = (F.nullif(F.col(name), F.lit("")) for name in ("key", "t"))
    number = F.when(t.rlike(_NUMBER), t.try_cast("bigint"))
    return rows.withColumns(
        {
            "source": F.input_file_name(),
            "text": F.coalesce(F.make_valid_utf8(text), F.lit("")),
            "key": key,
            "t": number,
            "unread": F.col("_broken").isNotNull() | ~is_text | (t.isNotNull() & number.isNull()),
        }
    )
