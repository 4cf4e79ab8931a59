"""Tables from where they lie, as DataFrames: batch or stream, one interface. Rank 5.

Each row has the columns of its table, and three more:

- ``source``: the file, or topic, partition and offset, from which it comes,
- ``reason``: null, or why it is no row of the table,
- ``raw``: null, or the text of such a row, in valid UTF-8.

Nothing is left out: a row that cannot be read is one with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.errors import BadInputError
from aiowheel.jobs.operations.schemas import EVENTS, OPERATIONS, SEPARATOR
from aiowheel.jobs.spark.uris import Folder, Place, Table, Topic, parse_uri
from aiowheel.jobs.spark.values import (
    TOUCHES,
    ValueFormat,
    ddl,
    json_of,
    parse_avro,
    parse_json,
    spark_type,
    with_reasons,
)
from aiowheel.readers import Format

_LONGEST_AGE: Final = "36500d"  # Spark forgets, in silence, files a week older than the newest
_NUMBER: Final = r"^-?[0-9]{1,19}$"
_FILES: Final = (Format.PARQUET, Format.NDJSON, Format.CSV)


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows come from, and how they are written.

    Attributes:
        uri: As `parse_uri` reads it.
        form: Of files: Parquet, ndjson or csv.
        value_form: Of the values of a topic: JSON or Avro.
        per_batch: None reads what is there now. A number makes a stream whose micro-batches have at
            most so many files, or records of a topic.
        options: More options for Spark's reader, such as ``kafka.security.protocol``.
    """

    uri: str
    form: Format = Format.PARQUET
    value_form: ValueFormat = ValueFormat.JSON
    per_batch: int | None = None
    options: Mapping[str, str] = field(default_factory=dict[str, str])


def read_touches(spark: SparkSession, source: Source) -> DataFrame:
    """Read ``key: string, t: bigint``, ``source``, ``reason`` and ``raw``.

    Raises:
        BadInputError: The URI or the format is none, or a Delta table has other columns.
    """
    return _read(spark, source, "touches", TOUCHES)


def read_operations(spark: SparkSession, source: Source) -> DataFrame:
    """Read the columns of `OPERATIONS`, ``source``, ``reason`` and ``raw``, as `read_touches`."""
    return _read(spark, source, "operations", OPERATIONS)


def read_events(spark: SparkSession, source: Source) -> DataFrame:
    """Read the columns of `EVENTS`, ``source``, ``reason`` and ``raw``, as `read_touches`."""
    return _read(spark, source, "events", EVENTS)


def readable(rows: DataFrame) -> DataFrame:
    """The rows without a reason, in the columns of their table."""
    return rows.where(F.col("reason").isNull()).drop("source", "reason", "raw")


def unreadable(rows: DataFrame) -> DataFrame:
    """The rows with a reason: ``source``, ``reason``, ``raw``."""
    return rows.where(F.col("reason").isNotNull()).select("source", "reason", "raw")


def _read(spark: SparkSession, source: Source, table: str, schema: pa.Schema) -> DataFrame:
    if source.per_batch is not None and source.per_batch < 1:
        raise BadInputError(f"per_batch must be 1 or more, got {source.per_batch}")
    place = parse_uri(source.uri)
    if isinstance(place, Topic):
        values = _load(spark, source, place, "kafka", _kafka_options(source, place))
        rows = _records(values)
        is_avro = source.value_form is ValueFormat.AVRO
        rows = parse_avro(rows, table) if is_avro else parse_json(rows, schema)
    elif isinstance(place, Table):
        rows = _typed_rows(_load(spark, source, place, "delta", _file_options(source)), schema)
        _check_columns(rows, schema, source.uri)
    else:
        rows = _read_files(spark, source, place, schema)
    return with_reasons(rows, schema)


def _load(
    spark: SparkSession,
    source: Source,
    place: Place,
    form: str,
    options: Mapping[str, str],
    schema: str | None = None,
) -> DataFrame:
    reader: Any = spark.read if source.per_batch is None else spark.readStream
    reader = reader.format(form).options(**{**options, **source.options})
    if schema is not None:
        reader = reader.schema(schema)
    if isinstance(place, Topic):
        loaded: DataFrame = reader.load()
    elif isinstance(place, Table):  # whose path is no pattern
        loaded = reader.load(place.folder.path)
    else:
        loaded = reader.load(place.pattern)
    return loaded


def _kafka_options(source: Source, topic: Topic) -> dict[str, str]:
    options = {
        "kafka.bootstrap.servers": topic.servers,
        "subscribe": topic.name,
        "startingOffsets": "earliest",  # where there is a checkpoint, its offsets count
        "failOnDataLoss": "true",
        "kafka.isolation.level": "read_committed",  # what a producer took back is no row
    }
    if source.per_batch is not None:
        options["maxOffsetsPerTrigger"] = str(source.per_batch)
    return options


def _records(values: DataFrame) -> DataFrame:
    place = (F.col("topic"), F.lit("/"), F.col("partition"), F.lit("@"), F.col("offset"))
    return values.select("value", F.concat(*place).alias("source"))


def _file_options(source: Source) -> dict[str, str]:
    return {} if source.per_batch is None else {"maxFilesPerTrigger": str(source.per_batch)}


def _read_files(
    spark: SparkSession, source: Source, folder: Folder, schema: pa.Schema
) -> DataFrame:
    options = _file_options(source)
    if source.per_batch is None:
        options["recursiveFileLookup"] = "true"  # else a file in a folder of its own is left out
    else:
        options["maxFileAge"] = _LONGEST_AGE
    if source.form is Format.PARQUET:
        rows = _load(spark, source, folder, "parquet", options, ddl(schema))
        return _typed_rows(rows, schema)
    if source.form is Format.NDJSON:
        lines = _load(spark, source, folder, "text", options, "value string")
        lines = lines.where(F.trim("value") != "").withColumn("source", F.input_file_name())
        return parse_json(lines, schema)
    if source.form is Format.CSV:
        return _read_csv(spark, source, folder, schema, options)
    raise BadInputError(f"format must be {', '.join(_FILES)}, got {source.form}")


def _typed_rows(rows: DataFrame, schema: pa.Schema) -> DataFrame:
    """Rows of files that keep types; their text is made up only where it is asked for."""
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


def _read_csv(
    spark: SparkSession,
    source: Source,
    folder: Folder,
    schema: pa.Schema,
    options: Mapping[str, str],
) -> DataFrame:
    texts = ", ".join(f"{name} string" for name in [*schema.names, "_broken"])
    csv = {
        **options,
        "header": "true",
        "escape": '"',
        "enforceSchema": "false",  # the header names the columns, or the file is refused
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": "_broken",
    }
    rows = _load(spark, source, folder, "csv", csv, texts)
    text = F.coalesce(F.col("_broken"), F.to_csv(F.struct(*schema.names)))
    rows = rows.withColumns(
        {
            "source": F.input_file_name(),
            "text": F.coalesce(F.make_valid_utf8(text), F.lit("")),
        }
    )
    unread = F.col("_broken").isNotNull()
    columns: dict[str, Column] = {}
    for column in schema:
        cell = F.nullif(F.col(column.name), F.lit(""))
        kind = spark_type(column.type)
        cells = F.split(cell, f"[{SEPARATOR}]") if "array" in kind else F.array(cell)
        if "bigint" in kind:
            unread |= F.coalesce(F.exists(cells, _is_odd), F.lit(False))
        columns[column.name] = {
            "string": cell,
            "bigint": _number(cell),
            "array<string>": cells,
            "array<bigint>": F.transform(cells, _number),
        }[kind]
    return rows.withColumns({**columns, "unread": unread})


def _number(cell: Column) -> Column:
    return F.when(cell.rlike(_NUMBER), cell.try_cast("bigint"))


def _is_odd(cell: Column) -> Column:
    return (cell != "") & _number(cell).isNull()
