"""Rows as Kafka values and as lines of files: JSON or Avro, one row per value. Rank 5.

A value that is not a row of its table is kept as text, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum
from functools import reduce
from operator import and_
from typing import Any, Final

from aiowheel.errors import MissingExtraError

try:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name
except ImportError as _error:
    raise MissingExtraError("spark") from _error

from aiowheel.jobs.schemas import EVENTS, OPERATIONS, TOUCHES, Flaw

_SPARK_TYPES: Final = {
    pa.string(): "string",
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
}
#: The types of Spark with whole numbers.
INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
_TABLES: Final = {"touches": TOUCHES, "operations": OPERATIONS, "events": EVENTS}

_HIGH: Final = r"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW: Final = r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"

_BROKEN: Final = "_broken"
_JSON_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _BROKEN,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


class ValueFormat(StrEnum):
    """The encoding of a row in the value of a Kafka record."""

    JSON = "json"
    AVRO = "avro"


def spark_type(kind: pa.DataType) -> str:
    """Return the Spark name of a column type."""
    if pa.types.is_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        fields = ", ".join(f"{field.name}: {spark_type(field.type)}" for field in kind)
        return f"struct<{fields}>"
    return _SPARK_TYPES[kind]


def ddl(schema: pa.Schema) -> str:
    """Return the Spark schema of a table."""
    return ", ".join(f"`{field.name}` {spark_type(field.type)}" for field in schema)


def avro_schema(table: str) -> str:
    """Return the Avro schema of a table, as JSON.

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
        # A threshold may be null, a key may not.
        items = pa.field("item", field.type.value_type, nullable=field.nullable)
        kind = {"type": "array", "items": _avro_type(items)}
    else:
        kind = {pa.string(): "string", pa.int64(): "long"}[field.type]
    return ["null", kind] if field.nullable else kind


def text_of(value: Column) -> Column:
    """Convert bytes to text, with invalid UTF-8 replaced; null stays null."""
    return F.coalesce(F.make_valid_utf8(value.cast("string")), F.lit(""))


def parse_json(rows: DataFrame, schema: pa.Schema) -> DataFrame:
    """Turn the column ``value`` into the columns of *schema*, ``unread`` and ``text``.

    ``unread`` is true unless the value is exactly one JSON object with these types; additional
    fields of the object are ignored.
    """
    text = text_of(F.col("value"))
    parsed = F.from_json(text, f"{ddl(schema)}, {_BROKEN} string", _JSON_OPTIONS)
    rows = rows.withColumn("text", text).withColumn("_row", parsed)
    # Spark parses an array as its first element, and ignores text after an object.
    objects = F.json_array_length(F.concat(F.lit("["), "text", F.lit("]")))
    is_one = F.ltrim("text").startswith("{") & (F.coalesce(objects, F.lit(0)) == 1)
    # Replacing invalid bytes, or halves of a character, could make two different keys equal.
    is_text = F.coalesce(F.is_valid_utf8(F.col("value").cast("string")), F.lit(False))
    is_text &= ~_has_half_characters(text)
    is_row = F.col("_row").isNotNull() & F.col(f"_row.{_BROKEN}").isNull()
    unread = ~(is_text & is_one & is_row)
    return _unpacked(rows, schema, unread)


def _has_half_characters(json_text: Column) -> Column:
    r"""Return whether an escape such as ``\ud800`` is half of a pair, and so no character."""
    # First without backslashes that are escaped themselves, then without the pairs.
    escapes = F.regexp_replace(json_text, r"\\\\", " ")
    single = F.regexp_replace(escapes, rf"{_HIGH}{_LOW}", " ")
    # The first condition spares most values the other ones, which are slower.
    return json_text.contains(r"\u") & single.rlike(rf"{_HIGH}|{_LOW}")


def parse_avro(rows: DataFrame, table: str) -> DataFrame:
    """Like `parse_json`, for Avro's binary encoding with the schema of *table* and no header."""
    from pyspark.sql.avro.functions import from_avro, to_avro

    written = avro_schema(table)
    rows = rows.withColumn("text", text_of(F.col("value"))).withColumn(
        "_row", from_avro("value", written, {"mode": "PERMISSIVE"})
    )
    schema = _TABLES[table]
    required = [F.col(f"_row.{field.name}").isNotNull() for field in schema if not field.nullable]
    # Spark ignores bytes after a row, and decodes most bytes as some row.
    again = F.when(reduce(and_, required), to_avro("_row", written))
    return _unpacked(rows, schema, ~F.coalesce(again == F.col("value"), F.lit(False)))


def _unpacked(rows: DataFrame, schema: pa.Schema, unread: Column) -> DataFrame:
    columns = {name: F.when(~unread, F.col(f"_row.{name}")) for name in schema.names}
    return rows.withColumns({**columns, "unread": unread}).drop("_row")


def with_reasons(rows: DataFrame, schema: pa.Schema, flaw: Column | None = None) -> DataFrame:
    """Select the columns of *schema*, ``source``, ``reason`` and ``raw``, the last two nullable.

    Args:
        rows: The columns of *schema*, ``source``, ``unread`` and ``text``.
        schema: The schema of the table.
        flaw: Another reason to reject a row, or null.
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


def json_of(columns: Iterable[str | Column]) -> Column:
    """Return the columns as one JSON object, in which nulls are kept."""
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})
