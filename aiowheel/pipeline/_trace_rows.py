"""Rows of Parquet, ndjson and csv files with the columns and types of a table. Rank 5: no Spark.

As Spark reads them: a column that is missing is null, a number will do for a text, and a text never
for a number.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from aiowheel.errors import BadInputError
from aiowheel.pipeline.schemas import SEPARATOR, Flaw
from aiowheel.readers import Format, Inputs

Row = dict[str, Any]
#: The file, the row or what is wrong with it, and the row as it was written.
Read = tuple[str, Row | Flaw, str]

_BATCH_ROWS = 16_384
_LEAST, _MOST = -(2**63), 2**63 - 1


def rows_of(path: Path, form: Format, schema: pa.Schema) -> Iterator[Read]:
    """Yield every row of the files at *path*.

    Raises:
        BadInputError: A file cannot be read, or has not these columns.
    """
    inputs = Inputs([str(path)], form)
    if form is Format.PARQUET:
        for file in inputs.paths:
            yield from _parquet_rows(file, schema)
        return
    split = _csv_rows if form is Format.CSV else _ndjson_rows
    for source in inputs.sources():
        for row, raw in split(source.name, source.text, schema):
            yield source.name, row, raw


def _parquet_rows(file: Path, schema: pa.Schema) -> Iterator[Read]:
    try:
        with pq.ParquetFile(file) as opened:
            there = [name for name in schema.names if name in opened.schema_arrow.names]
            for batch in opened.iter_batches(_BATCH_ROWS, columns=there):
                for row in _typed(batch, schema).to_pylist():
                    yield str(file), row, ""
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise BadInputError(f"{file}: {error}") from error


def _typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    columns = [
        batch.column(name).cast(schema.field(name).type)
        if name in batch.schema.names
        else pa.nulls(batch.num_rows, schema.field(name).type)
        for name in schema.names
    ]
    return pa.table(columns, names=schema.names)


def _ndjson_rows(
    _name: str, lines: Iterator[str], schema: pa.Schema
) -> Iterator[tuple[Row | Flaw, str]]:
    for line in lines:
        text = line.strip()
        if not text:
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            record = None
        yield _json_row(record, schema), text


def _json_row(record: Any, schema: pa.Schema) -> Row | Flaw:
    if not isinstance(record, dict):
        return Flaw.RECORD
    row: Row = {}
    for column in schema:
        try:
            row[column.name] = _json_value(record.get(column.name), column.type)
        except ValueError:
            return Flaw.RECORD
    return row


def _json_value(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_json_value(each, kind.value_type) for each in value]
    if kind == pa.string() and isinstance(value, (str, int)):
        return str(value)
    if kind == pa.int64() and type(value) is int and _LEAST <= value <= _MOST:
        return value
    raise ValueError(value)


def _csv_rows(
    name: str, lines: Iterator[str], schema: pa.Schema
) -> Iterator[tuple[Row | Flaw, str]]:
    reader = csv.reader(lines)
    header = next(reader, [])
    if header != schema.names:
        got = ",".join(header) or "none"
        raise BadInputError(f"{name}: line 1: want the columns {','.join(schema.names)}, got {got}")
    for fields in reader:
        if not fields:
            continue
        raw = ",".join(fields)
        if len(fields) != len(header):
            yield Flaw.RECORD, raw
            continue
        try:
            yield (
                {
                    column.name: _csv_value(text, column.type)
                    for column, text in zip(schema, fields, strict=True)
                },
                raw,
            )
        except ValueError:
            yield Flaw.RECORD, raw


def _csv_value(text: str, kind: pa.DataType) -> Any:
    if not text:
        return None
    if pa.types.is_list(kind):
        return [_csv_value(each, kind.value_type) for each in text.split(SEPARATOR)]
    if kind == pa.string():
        return text
    number = int(text)
    if not _LEAST <= number <= _MOST or not text.lstrip("-").isdigit():
        raise ValueError(text)
    return number
