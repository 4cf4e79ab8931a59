"""Traces as Spark reads them: files to checked columns, without a Python function. Rank 5.

What `trace_files` does for one process, flaw by flaw.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name

from aiowheel.jobs.operations.schemas import ALL, ANY, LATEST, SEPARATOR, Flaw
from aiowheel.jobs.spark.path import spark_path
from aiowheel.readers import Format
from aiowheel.rules import NEVER, NO_VALUE

_OPERATIONS: Final = {
    "id": "string",
    "keys": "array<string>",
    "thresholds": "array<bigint>",
    "mode": "string",
    "created": "bigint",
    "deadline": "bigint",
}
_EVENTS: Final = {"key": "string", "time": "bigint", "value": "bigint"}
_BROKEN: Final = "_broken"  # the text of what is no record at all
_LONGEST_AGE: Final = "36500d"  # Spark forgets, in silence, files a week older than the newest
_NUMBER: Final = r"^-?[0-9]{1,19}$"


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
        do; ``flaw``, or null; ``source`` and ``raw`` for a table of rejects.
    """
    # That reader of Spark 4 fails on a file in which all elements of all `thresholds` are null:
    # "Index 0 out of bounds for length 0".
    spark.conf.set("spark.sql.parquet.enableNestedColumnVectorizedReader", "false")
    rows = _read(spark, path, form, _OPERATIONS, files_per_batch)
    empty_id = F.coalesce(F.col("id"), F.lit("")) == ""
    count = F.coalesce(F.size("keys"), F.lit(-1))
    mode = F.coalesce(F.col("mode"), F.lit(ANY))
    # Null if one is null. Spark makes Java of this, and calls back for each element of `exists`.
    empty_key = F.coalesce(F.array_contains("keys", ""), F.lit(True))
    flaws = {
        Flaw.RECORD: F.col("unread"),
        Flaw.ID: empty_id,
        Flaw.KEYS: (count <= 0) | empty_key,
        Flaw.REPEATED: F.size(F.array_distinct("keys")) != count,
        Flaw.THRESHOLDS: F.col("thresholds").isNotNull() & (F.size("thresholds") != count),
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
        *_checked(flaws),
    )


def read_events(
    spark: SparkSession, path: Path, form: Format, *, files_per_batch: int = 0
) -> DataFrame:
    """Read a file or folder of events.

    Args and extra columns as of `read_operations`; else ``key``, ``time`` and ``value`` as in
    `rules.Event`.
    """
    rows = _read(spark, path, form, _EVENTS, files_per_batch)
    empty_key = F.coalesce(F.col("key"), F.lit("")) == ""
    flaws = {
        Flaw.RECORD: F.col("unread"),
        Flaw.KEY: empty_key,
        Flaw.TIME: _no_time("time"),
    }
    return rows.select(
        "key",
        "time",
        F.coalesce(F.col("value"), F.lit(NO_VALUE)).alias("value"),
        *_checked(flaws),
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


def _read(
    spark: SparkSession, path: Path, form: Format, columns: Mapping[str, str], files_per_batch: int
) -> DataFrame:
    types = dict.fromkeys(columns, "string") if form is Format.CSV else dict(columns)
    if form is not Format.PARQUET:
        types[_BROKEN] = "string"
    schema = ", ".join(f"{name} {kind}" for name, kind in types.items())
    options = {"columnNameOfCorruptRecord": _BROKEN, "mode": "PERMISSIVE"}
    if form is Format.CSV:
        options |= {"header": "true", "escape": '"', "enforceSchema": "false"}
    if form is Format.NDJSON:
        options |= {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
    name = "json" if form is Format.NDJSON else form.value
    if files_per_batch:
        options |= {"maxFilesPerTrigger": str(files_per_batch), "maxFileAge": _LONGEST_AGE}
        stream = spark.readStream.format(name).schema(schema).options(**options)
        rows = stream.load(spark_path(path))
    else:
        options["recursiveFileLookup"] = "true"  # else a file in a folder of its own is left out
        table = spark.read.format(name).schema(schema).options(**options)
        rows = table.load(spark_path(path))
    if form is Format.PARQUET:
        rows = rows.withColumn(_BROKEN, F.lit(None).cast("string"))
    rows = rows.withColumns(
        {
            # Not `_metadata.file_path`: Spark would make that up for every row, asked for or not.
            "source": F.input_file_name(),
            "raw": F.coalesce(F.col(_BROKEN), F.to_json(F.struct(*columns))),
            "unread": F.col(_BROKEN).isNotNull(),
        }
    )
    return _typed(rows, columns) if form is Format.CSV else rows


def _typed(rows: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """The columns of a csv, which are all text; what is no number makes a row unread."""
    unread = F.col("unread")
    values: dict[str, Column] = {}
    for name, kind in columns.items():
        text = F.nullif(F.col(name), F.lit(""))
        texts = F.split(text, f"[{SEPARATOR}]")
        if "bigint" in kind:
            numbers = texts if "array" in kind else F.array(text)
            unread |= F.coalesce(F.exists(numbers, _is_odd), F.lit(False))
        values[name] = {
            "string": text,
            "bigint": _number(text),
            "array<string>": texts,
            "array<bigint>": F.transform(texts, _number),
        }[kind]
    return rows.withColumns({**values, "unread": unread})


def _number(text: Column) -> Column:
    return F.when(text.rlike(_NUMBER), text.try_cast("bigint"))


def _is_odd(text: Column) -> Column:
    return (text != "") & _number(text).isNull()


def _no_time(column: str) -> Column:
    return ~F.coalesce(F.col(column).between(0, LATEST), F.lit(False))


def _checked(flaws: Mapping[Flaw, Column]) -> list[Column]:
    cases = [
        F.when(F.coalesce(holds, F.lit(False)), F.lit(flaw.value)) for flaw, holds in flaws.items()
    ]
    flaw = F.coalesce(*cases)
    # Only of what is rejected: to make up the text of a row costs more than to check it.
    raw = F.when(flaw.isNotNull(), F.col("raw"))
    return [flaw.alias("flaw"), F.col("source"), raw.alias("raw")]
