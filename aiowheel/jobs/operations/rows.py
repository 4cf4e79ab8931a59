"""Rows of Parquet, ndjson and csv files with the columns and types of a table. Rank 5: no Spark.

A missing column is null. A number is accepted for a text column, but a text never for a number
column. Spark reads Parquet itself and passes the lines of text files to `rows_of_lines`.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from aiowheel._printable import is_unicode
from aiowheel.errors import BadInputError
from aiowheel.jobs.schemas import SEPARATOR, Flaw
from aiowheel.readers import Format, Inputs
from aiowheel.readers._inputs import READ_ERRORS, read_failure
from aiowheel.readers._parquet import check_row_count, is_text

Row = dict[str, Any]

_BATCH_ROWS = 16_384
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_LEAST, _MOST = -(2**63), 2**63 - 1
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_ESCAPES = str.maketrans({chr(code): f"\\u{code:04X}" for code in range(32)} | _SHORT)


def rows_of(path: Path, form: Format, schema: pa.Schema) -> Iterator[tuple[str, Row | Flaw, str]]:
    """Yield every row of the files at *path*: the file, the row or its flaw, and the row as text.

    The file is an absolute path, as in Spark. The text of a Parquet row without a flaw is ""; see
    `json_text`.

    Raises:
        BadInputError: A file cannot be read, or has other columns.
    """
    inputs = Inputs([str(path)], form)
    if form is Format.PARQUET:
        for file in inputs.paths:
            for row, raw in _parquet_rows(file, schema):
                yield str(file.absolute()), row, raw
        return
    for source in inputs.sources():
        place = str(Path(source.name).absolute())
        lines = (line.rstrip("\r\n") for line in source.text)
        try:
            for row, raw in rows_of_lines(source.name, lines, form, schema):
                yield place, row, raw
        except READ_ERRORS as error:
            raise BadInputError(f"{source.name}: {read_failure(error)}") from error


# --- text -----------------------------------------------------------------------------------------


def rows_of_lines(
    name: str, lines: Iterable[str], form: Format, schema: pa.Schema, *, from_start: bool = True
) -> Iterator[tuple[Row | Flaw, str]]:
    """Yield the rows of a text file, each with its line; blank lines are skipped.

    Args:
        name: The name of the file.
        lines: The lines without line ends; invalid UTF-8 as lone surrogates.
        form: Ndjson or csv.
        schema: The schema of the table.
        from_start: Whether *lines* begin with the first line of the file, the header of a csv.

    Raises:
        BadInputError: The header has other columns.
    """
    texts = (line for line in lines if line and not line.isspace())
    if form is Format.NDJSON:
        for text in texts:
            record = _json(text) if is_unicode(text) else None
            for row in _json_rows(record, schema):
                yield row, _readable(text)
        return
    if from_start and (header := next(texts, None)) is not None:
        _check_header(name, header, schema)
    for text in texts:
        yield _csv_row(text, schema), _readable(text)


def _readable(text: str) -> str:
    """Return the *text* of a line with invalid UTF-8 replaced."""
    if is_unicode(text):
        return text
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_float=str)
    except (ValueError, RecursionError):
        return None


def _json_rows(value: Any, schema: pa.Schema) -> list[Row | Flaw]:
    """Return the rows of a JSON value; an array stands for its objects, all of them or none."""
    if not isinstance(value, list):
        return [_json_row(value, schema)]
    if not all(isinstance(each, dict) for each in value):
        return [Flaw.RECORD]
    rows = [_json_row(each, schema) for each in value]
    return [Flaw.RECORD] * len(rows) if Flaw.RECORD in rows else rows


def _json_row(record: Any, schema: pa.Schema) -> Row | Flaw:
    if not isinstance(record, dict):
        return Flaw.RECORD
    try:
        return {column.name: _json_value(record.get(column.name), column.type) for column in schema}
    except ValueError:
        return Flaw.RECORD


def _json_value(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if kind == pa.string():
        if isinstance(value, str) and is_unicode(value):
            return value
        if isinstance(value, int):
            return json.dumps(value)
    elif kind == pa.int64():
        if type(value) is int and _LEAST <= value <= _MOST:
            return value
    elif isinstance(value, list):
        return [_json_value(each, kind.value_type) for each in value]
    raise ValueError(value)


def _check_header(name: str, line: str, schema: pa.Schema) -> None:
    header = _fields(line)
    if header != schema.names:
        got = _readable(",".join(header or [line]))
        wanted = ",".join(schema.names)
        raise BadInputError(f"{name}: line 1 must be the columns {wanted}, got {got}")


def _csv_row(text: str, schema: pa.Schema) -> Row | Flaw:
    fields = _fields(text)
    if fields is None or len(fields) != len(schema) or not is_unicode(text):
        return Flaw.RECORD
    try:
        return {
            column.name: _csv_value(field, column.type)
            for column, field in zip(schema, fields, strict=True)
        }
    except ValueError:
        return Flaw.RECORD


def _fields(line: str) -> list[str] | None:
    """Return the fields of a line; None if its quotes are malformed."""
    if '"' not in line:
        return line.split(",")
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error:
        return None


def _csv_value(text: str, kind: pa.DataType) -> Any:
    if not text:
        return None
    if kind == pa.string():
        return text
    if kind != pa.int64():
        return [_csv_value(each, kind.value_type) for each in text.split(SEPARATOR)]
    if not _NUMBER.fullmatch(text) or not _LEAST <= int(text) <= _MOST:
        raise ValueError(text)
    return int(text)


# --- Parquet --------------------------------------------------------------------------------------


def parquet_files(path: Path, schema: pa.Schema) -> dict[Path, int]:
    """Return the Parquet files at *path* that have rows, with their numbers of rows.

    Raises:
        BadInputError: A file is not Parquet, or one with rows has columns of other types.
    """
    counts = {file: check_parquet_file(file, schema) for file in Inputs([str(path)]).paths}
    return {file: count for file, count in counts.items() if count}


def json_text(row: Row) -> str:
    """Write a Parquet row like Spark's `to_json`: nulls are left out, except in a list."""
    there = {name: value for name, value in row.items() if value is not None}
    return _json_text(there)


def _json_text(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPES)}"'
    if isinstance(value, list):
        return f"[{','.join(map(_json_text, value))}]"
    if isinstance(value, dict):
        return (
            f"{{{','.join(f'{_json_text(name)}:{_json_text(of)}' for name, of in value.items())}}}"
        )
    return "null" if value is None else str(value)


def check_parquet_file(file: Path, schema: pa.Schema) -> int:
    """Return the number of rows of *file* after checking its columns.

    Spark itself would read a timestamp as an integer, and gives other errors without a name.

    Raises:
        BadInputError: The file is not Parquet, or has rows and columns of other types.
    """
    try:
        with pq.ParquetFile(file) as opened:
            rows = int(opened.metadata.num_rows)
            found = opened.schema_arrow
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        # The last one: a damaged column name.
        raise BadInputError(f"{file}: {error}") from error
    except UnicodeEncodeError as error:  # Arrow opens files by paths in UTF-8
        raise BadInputError(f"{file}: the path must be UTF-8") from error
    for column in schema if rows else ():
        # Spark ignores the case of column names, the reader in one process does not.
        names = [name for name in found.names if name.lower() == column.name]
        if names not in ([], [column.name]):
            got = ", ".join(names)
            raise BadInputError(f"{file}: must have one column {column.name}, got {got}")
        if names and not _is_accepted_type(found.field(column.name).type, column.type):
            got = found.field(column.name).type
            raise BadInputError(f"{file}: column {column.name} must be {column.type}, got {got}")
    return rows


def _is_accepted_type(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_null(found):
        return True
    if pa.types.is_list(wanted):
        is_list = pa.types.is_list(found) or pa.types.is_large_list(found)
        return is_list and _is_accepted_type(found.value_type, wanted.value_type)
    if wanted == pa.int64():
        return bool(pa.types.is_integer(found)) and found != pa.uint64()
    return is_text(found.value_type if pa.types.is_dictionary(found) else found)


def _parquet_rows(file: Path, schema: pa.Schema) -> Iterator[tuple[Row | Flaw, str]]:
    promised = check_parquet_file(file, schema)
    if not promised:
        return
    read = 0
    try:
        with pq.ParquetFile(file) as opened:
            there = [name for name in schema.names if name in opened.schema_arrow.names]
            for batch in opened.iter_batches(_BATCH_ROWS, columns=there):
                read += batch.num_rows
                table = _typed(batch, schema)
                try:
                    rows = table.to_pylist()
                except UnicodeDecodeError:
                    yield from _decoded_rows(table)
                else:
                    for row in rows:
                        yield row, ""
    except (pa.ArrowException, OSError) as error:
        raise BadInputError(f"{file}: {error}") from error
    check_row_count(str(file), promised, read)


def _typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    columns = [
        batch.column(name).cast(schema.field(name).type)
        if name in batch.schema.names
        else pa.nulls(batch.num_rows, schema.field(name).type)
        for name in schema.names
    ]
    return pa.table(columns, names=schema.names)


def _decoded_rows(table: pa.Table) -> Iterator[tuple[Row | Flaw, str]]:
    """Yield the rows of a table in which some text is not valid UTF-8."""
    texts = {pa.string(): pa.binary(), pa.list_(pa.string()): pa.list_(pa.binary())}
    kinds = [texts.get(field.type, field.type) for field in table.schema]
    for row in table.cast(pa.schema(zip(table.column_names, kinds, strict=True))).to_pylist():
        try:
            yield {name: _decoded(value, "strict") for name, value in row.items()}, ""
        except UnicodeDecodeError:
            readable = {name: _decoded(value, "replace") for name, value in row.items()}
            yield Flaw.RECORD, json_text(readable)


def _decoded(value: Any, errors: str) -> Any:
    if isinstance(value, list):
        return [_decoded(each, errors) for each in value]
    return value.decode(errors=errors) if isinstance(value, bytes) else value
