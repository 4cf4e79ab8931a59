"""Rows as values of Kafka, and as lines of files: JSON or Avro, one row a value. Rank 5.

A value that is no row of its table is kept: as text, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum
from functools import reduce
from operator import and_
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.jobs.operations.schemas import EVENTS, OPERATIONS, Flaw

#: One row a touch; `t` is in the unit of the run.
TOUCHES: Final = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("t", pa.int64(), nullable=False),
    ]
)
_SPARK_TYPES: Final = {
    pa.string(): "string",
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
}
_TABLES: Final = {"touches": TOUCHES, "operations": OPERATIONS, "events": EVENTS}

_BROKEN: Final = "_broken"
_JSON_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _BROKEN,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


class ValueFormat(StrEnum):
    """How a row is written in the value of a Kafka record."""

    JSON = "json"
    AVRO = "avro"


def spark_type(kind: pa.DataType) -> str:
    """The type of a column as Spark writes it."""
    if pa.types.is_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        fields = ", ".join(f"{field.name}: {spark_type(field.type)}" for field in kind)
        return f"struct<{fields}>"
    return _SPARK_TYPES[kind]


def ddl(schema: pa.Schema) -> str:
    """The columns of a table as Spark writes them."""
    return ", ".join(f"{field.name} {spark_type(field.type)}" for field in schema)


def avro_schema(table: str) -> str:
    """The Avro schema of a table, as JSON.

    Args:
        table: "touches", "operations" or "events".
    """
    fields = [
        {"name": field.name, "type": _avro_type(field)}
        | ({"default": None} if field.nullable else {})
        for field in _TABLES[table]
    ]
    return json.dumps({"type": "record", "name": table, "fields": fields})


def _avro_type(field: pa.Field) -> Any:
    kind: Any
    if pa.types.is_list(field.type):
        # Thresholds may be null one by one, keys may not.
        items = pa.field("item", field.type.value_type, nullable=field.nullable)
        kind = {"type": "array", "items": _avro_type(items)}
    else:
        kind = {pa.string(): "string", pa.int64(): "long"}[field.type]
    return ["null", kind] if field.nullable else kind


def text_of(value: Column) -> Column:
    """Bytes as text, with what is no UTF-8 replaced; no value is no text."""
    return F.coalesce(F.make_valid_utf8(value.cast("string")), F.lit(""))


def parse_json(rows: DataFrame, schema: pa.Schema) -> DataFrame:
    """Turn the column ``value`` into the columns of *schema*, ``unread`` and ``text``.

    ``unread`` says that the value is not exactly one JSON object with these types; what else the
    object has is passed over.
    """
    text = text_of(F.col("value"))
    parsed = F.from_json(text, f"{ddl(schema)}, {_BROKEN} string", _JSON_OPTIONS)
    rows = rows.withColumn("text", text).withColumn("_row", parsed)
    # Spark takes an array for its first element, and passes over what follows an object.
    objects = F.json_array_length(F.concat(F.lit("["), "text", F.lit("]")))
    is_one = F.ltrim("text").startswith("{") & (F.coalesce(objects, F.lit(0)) == 1)
    # Two keys that are no UTF-8 would become one, with the same signs in place of their bytes.
    is_text = F.coalesce(F.is_valid_utf8(F.col("value").cast("string")), F.lit(False))
    is_row = F.col("_row").isNotNull() & F.col(f"_row.{_BROKEN}").isNull()
    unread = ~(is_text & is_one & is_row)
    return _unpacked(rows, schema, unread)


def parse_avro(rows: DataFrame, table: str) -> DataFrame:
    """As `parse_json`, of the binary encoding of Avro with the schema of *table* and no header."""
    from pyspark.sql.avro.functions import from_avro, to_avro

    written = avro_schema(table)
    rows = rows.withColumn("text", text_of(F.col("value"))).withColumn(
        "_row", from_avro("value", written, {"mode": "PERMISSIVE"})
    )
    schema = _TABLES[table]
    required = [F.col(f"_row.{field.name}").isNotNull() for field in schema if not field.nullable]
    # Spark passes over bytes behind a row, and takes most bytes for some row.
    again = F.when(reduce(and_, required), to_avro("_row", written))
    return _unpacked(rows, schema, ~F.coalesce(again == F.col("value"), F.lit(False)))


def _unpacked(rows: DataFrame, schema: pa.Schema, unread: Column) -> DataFrame:
    columns = {name: F.when(~unread, F.col(f"_row.{name}")) for name in schema.names}
    return rows.withColumns({**columns, "unread": unread}).drop("_row")


def with_reasons(rows: DataFrame, schema: pa.Schema, flaw: Column | None = None) -> DataFrame:
    """Select the columns of *schema*, ``source``, ``reason`` and ``raw``; the last two may be null.

    Args:
        rows: With the columns of *schema*, ``source``, ``unread`` and ``text``.
        schema: Of the table.
        flaw: What else is wrong with a row; or null.
    """
    cases = [F.when(F.col("unread"), F.lit(Flaw.RECORD.value))]
    cases += [
        F.when(F.col(field.name).isNull(), F.lit(f"{field.name} is missing"))
        for field in schema
        if not field.nullable
    ]
    reason = F.coalesce(*cases, *([] if flaw is None else [flaw]))
    raw = F.when(reason.isNotNull(), F.col("text"))
    return rows.select(*schema.names, "source", reason.alias("reason"), raw.alias("raw"))


def json_of(columns: Iterable[str]) -> Column:
    """The columns as one JSON object; a null stays a null in it."""
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})
