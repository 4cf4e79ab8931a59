"""Rows of Parquet, ndjson and csv files with the columns and types of a table. Rank 5: no Spark.

As Spark reads them: a column that is missing is null, a number will do for a text, and a text never
for a number.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from aiowheel.errors import BadInputError
from aiowheel.jobs.operations.schemas import SEPARATOR, Flaw
from aiowheel.readers import Format, Inputs
from aiowheel.readers._inputs import READ_ERRORS, read_failure

Row = dict[str, Any]
#: The file, the row or what is wrong with it, and the row as it was written.
Read = tuple[str, Row | Flaw, str]

_BATCH_ROWS = 16_384
_NUMBER = re.compile(r"-?[0-9]{1,19}")
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
        try:
            for row, raw in split(source.name, source.text, schema):
                yield source.name, row, raw
        except READ_ERRORS as error:
            raise BadInputError(f"{source.name}: {read_failure(error)}") from error


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
        read = line.strip()
        if not read:
            continue
        text = _unicode(read)
        try:
            value = json.loads(text, parse_float=str) if text == read else None
        except (ValueError, RecursionError):
            value = None
        for row in _json_rows(value, schema):
            yield row, text


def _json_rows(value: Any, schema: pa.Schema) -> list[Row | Flaw]:
    """An array counts as its objects, and is used as a whole or not at all."""
    if not isinstance(value, list):
        return [_json_row(value, schema)]
    if not all(isinstance(each, dict) for each in value):
        return [Flaw.RECORD]
    rows = [_json_row(each, schema) for each in value]
    return [Flaw.RECORD] * len(rows) if Flaw.RECORD in rows else rows


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
    if kind == pa.string() and isinstance(value, bool):
        return json.dumps(value)
    if kind == pa.string() and isinstance(value, (str, int)):
        return str(value).encode(errors="replace").decode()  # "\ud800" is half a character
    if kind == pa.int64() and type(value) is int and _LEAST <= value <= _MOST:
        return value
    raise ValueError(value)


def _csv_rows(
    name: str, lines: Iterator[str], schema: pa.Schema
) -> Iterator[tuple[Row | Flaw, str]]:
    reader = csv.reader(map(_unicode, lines))
    header = next(_records(reader), None) or []
    if header != schema.names:
        got = ",".join(header) or "none"
        raise BadInputError(f"{name}: line 1: want the columns {','.join(schema.names)}, got {got}")
    for fields in _records(reader):
        raw = ",".join(fields or ())
        if fields is None or len(fields) != len(header):
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


def _records(reader: Iterator[list[str]]) -> Iterator[list[str] | None]:
    """The records that are not blank; None for one that cannot be read."""
    while True:
        try:
            fields = next(reader, None)
        except csv.Error:  # a field of more than 131,072 characters
            yield None
            continue
        if fields is None:
            return
        if len(fields) > 1 or "".join(fields).strip():
            yield fields


def _unicode(text: str) -> str:
    """The *text* of a source, with what was no UTF-8 replaced."""
    if text.isascii():
        return text
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _csv_value(text: str, kind: pa.DataType) -> Any:
    if not text:
        return None
    if pa.types.is_list(kind):
        return [_csv_value(each, kind.value_type) for each in text.split(SEPARATOR)]
    if kind == pa.string():
        return text
    if not _NUMBER.fullmatch(text) or not _LEAST <= int(text) <= _MOST:
        raise ValueError(text)
    return int(text)
